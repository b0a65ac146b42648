"""The gateway without a sandbox: parts by themselves, real servers on the loopback."""
