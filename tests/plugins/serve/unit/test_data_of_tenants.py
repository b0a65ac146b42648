"""Datasets and volumes of a server's tenants are the operator's to give."""

from __future__ import annotations

import pytest

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve.command import datasets_of
from sandbox_kernel.plugins.serve.tenants import ServeLimits, Tenants
from sandbox_kernel.plugins.serve.token_file import METRICS

NAMES = ("ann", "bob", METRICS)
SETTINGS = from_keywords(datasets={"all": "/srv/all", "anns": "/srv/anns", "both": "/srv/both"})


def test_a_dataset_of_some_tenants_is_no_other_s() -> None:
    alone = datasets_of(["ann:anns", "ann:both", "bob:both"], SETTINGS, NAMES)
    tenants = Tenants({"base": SETTINGS}, ServeLimits(), None, alone)
    found = {
        name: [text.partition("=")[0] for text in tenants.settings_for(name, SETTINGS).get("datasets", ())]
        for name in ("ann", "bob", None)
    }
    assert found == {"ann": ["all", "anns", "both"], "bob": ["all", "both"], None: ["all"]}
    assert tenants.settings_for("ann", SETTINGS) is SETTINGS


@pytest.mark.parametrize("wrong", ["carl:anns", "ann:none", "ann", ":anns", "anns:ann", ""])
def test_what_names_no_tenant_or_no_dataset_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        datasets_of([wrong], SETTINGS, NAMES)
    assert caught.value.setting == "tenant-dataset"


def test_a_volume_that_is_written_to_is_no_several_tenants_volume() -> None:
    written, read = from_keywords(volumes="models:rw"), from_keywords(volumes="models:ro")
    with pytest.raises(ConfigurationError) as caught:
        datasets_of([], written, NAMES)
    assert caught.value.setting == "volumes"
    assert datasets_of([], written, ("ann", METRICS)) == datasets_of([], read, NAMES) == {}
