"""Miners of currencies: their programs, their pools, and the search for hashes."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight

RULES = (
    Rule(
        code=ScreenCode.MINER_PROGRAM,
        weight=Weight.CRITICAL,
        cwe=506,
        text=(
            r"(?i)\b(xmrig|xmr-stak\w*|minerd|cpuminer|ccminer|cgminer|bfgminer|ethminer|nbminer|phoenixminer|claymore\w*|t-rex miner|lolminer|teamredminer|gminer|srbminer\S*|nanominer|randomx|cryptonight|kawpow|coinhive|nheqminer|wildrig|cpuminer-multi|minergate|nicehashminer|pymine\w*|bminer)\b",
            r"(?i)\b(\w*crypto_?miner|py_?miner|\w*coin_?miner)\b",
            r"(?i)\b(crypto|bitcoin|monero|ethereum|btc|xmr|coin)[ _-]?min(er|ing)\b|\bminer\.(start|mine)\b|\bstart_mining\b|\bmine_(bitcoin|crypto|coin|monero|ethereum)\w*",
        ),
    ),
    Rule(
        code=ScreenCode.MINER_POOL,
        weight=Weight.CRITICAL,
        cwe=506,
        text=(
            r"(?i)\bstratum\d?(\+(tcp|ssl|tls|udp))?://|\bmining\.(subscribe|authorize|submit|notify)\b",
            r"(?i)\b(supportxmr|minexmr|moneroocean|nanopool|hashvault|f2pool|nicehash|ethermine|2miners|slushpool|antpool|viabtc|poolin|dwarfpool|flypool|unmineable|herominers|miningpoolhub|zpool|prohashing|kryptex|c3pool|xmrpool|monerohash|braiins|ckpool|btc\.com/pool)\b\S*",
            r"(?<![\w+/])4[0-9AB][1-9A-HJ-NP-Za-km-z]{93}(?![\w+/=])",
            r"(?i)--donate-level|--rig-id|--coin[= ](monero|xmr)|-o\s+\S+:\d{4,5}\s+-u\s+\S+",
        ),
    ),
    Rule(
        code=ScreenCode.MINER_LOOP,
        weight=Weight.MEDIUM,
        cwe=400,
        text=(r"\bproof_of_work\b|\bmine_block\b",),
        flows=((r"hashlib\.\w+", r"\bhashlib\.|nonce|difficulty"),),
    ),
)
