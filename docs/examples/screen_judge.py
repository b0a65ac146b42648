"""A judge for the screen: a small model of words, trained on labelled code when it is loaded.

Set `screen_judges = "/where/it/is/screen_judge.py:judge"`. Beside it lies `screen_judge.jsonl`, with a line of JSON for
each snippet: {"code": "...", "risky": true}. It needs scikit-learn in the environment of the kernel.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

PIECES = r"[A-Za-z_]\w*|[^\w\s]{1,3}|\d+"

lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
labelled = [json.loads(line) for line in lines]
# No norm: a short cell has few words, and so few points either way.
words = TfidfVectorizer(token_pattern=PIECES, ngram_range=(1, 2), sublinear_tf=True, norm=None)
model = make_pipeline(words, LogisticRegression(C=0.01, class_weight="balanced", max_iter=1000))
model.fit([one["code"] for one in labelled], [one["risky"] for one in labelled])


def judge(code: str, findings: list[dict[str, Any]]) -> tuple[float, str]:
    """Return the points of a cell, from 0 to 100, and a reason. A probability of 0.8 is 60 points."""
    risk = float(model.predict_proba([code])[0, 1])
    return 100 * risk**2.25, f"a model of {len(labelled)} snippets takes it for risky with a probability of {risk:.2f}"
