"""A receipt is a signed statement that other tools verify too, and whatever is changed in it or around it is found."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # exported, and not said so

from sandbox_kernel import cli
from sandbox_kernel.config.sources import changed
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.batch import exit_codes
from sandbox_kernel.plugins.batch.command import ReceiptFile
from sandbox_kernel.plugins.batch.run_report import CellRecord, OutputFile, RunReport
from sandbox_kernel.plugins.record import keys, receipt
from sandbox_kernel.plugins.record.codes import RecordCode
from tests.support.examples import examples
from tests.support.records import Folder, write


class Made:
    """A receipt, with the output folder and the audit that it names."""

    def __init__(self, place: Path) -> None:
        self.folder = Folder(place / "record")
        self.output = place / "results"
        (self.output / "files").mkdir(parents=True)
        contents = {"analysis.ipynb": b"{}", "files/out.csv": b"a,b"}
        for name, data in contents.items():
            (self.output / name).write_bytes(data)
        audit = write(self.folder.path, self.folder.key, "run")
        self.file = place / "receipt.json"
        self.report = RunReport(source={"name": "analysis.ipynb", "sha256": "0" * 64}, sandbox={}, versions={})
        self.report.cells = [CellRecord(index=0, number=1, source="1 / 0", status="failed")]
        self.report.end = exit_codes.End(kind="code failed", reason="ZeroDivisionError", cell=1)
        self.report.notebook = str(self.output / "analysis.ipynb")
        self.report.notebook_sha256 = hashlib.sha256(b"{}").hexdigest()
        self.report.files = [{"path": "out.csv", "bytes": 3, "sha256": hashlib.sha256(b"a,b").hexdigest()}]
        self.report.attested = {"image": "data", "image_id": "sha256:0"}
        self.report.audit = {"session": "run", "head": str(audit.head)}
        writer = ReceiptFile(OutputFile(self.file, setting="--receipt"))
        assert not writer.write(self.report), "without a key there is nothing to sign"
        writer.sign_by(changed(Settings(), {"audit_key": str(self.folder.key)}))
        assert writer.write(self.report)

    @property
    def envelope(self) -> dict[str, Any]:
        return dict(json.loads(self.file.read_text()))

    @property
    def public(self) -> str:
        return str(keys.read_key(str(self.folder.key)).public)

    def verify(self, *words: str) -> int:
        around = ["--output", str(self.output), "--audit-file", str(self.folder.path), "--key", str(self.folder.key)]
        return cli.main(["receipt", "verify", str(self.file), *around, *words])


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_control_what_is_left_alone_is_verified(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert made.verify() == 0
    assert "proven:     the owner of the key has stated this" in capsys.readouterr().out
    assert made.verify("--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["is_good"], said["is_signed"], said["findings"]) == (True, True, [])
    assert cli.main(["receipt", "verify", str(made.file), "--public-key", made.public]) == 0


def test_a_signature_is_verified_by_another_implementation(made: Made) -> None:
    """Securesystemslib verifies the envelope, and in-toto's own library the statement."""
    envelope = Envelope.from_dict(made.envelope)
    key = SSlibKey(made.public, "ed25519", "ed25519", {"public": made.public})
    assert set(envelope.verify([key], 1)) == {made.public}
    statement = Statement.copy_from_pb(json_format.Parse(envelope.payload, statement_pb2.Statement()))
    statement.validate()
    assert [one.name for one in statement.pb.subject] == ["analysis.ipynb", "files/out.csv"]
    envelope.payload = envelope.payload.replace(b"failed", b"worked")
    with pytest.raises(VerificationError):
        envelope.verify([key], 1)


def test_the_statement_says_what_ran_and_names_no_place_of_the_machine(made: Made, tmp_path: Path) -> None:
    found = receipt.read(made.file.read_bytes())
    said = found.predicate
    assert said["cells"][0]["source_sha256"] == hashlib.sha256(b"1 / 0").hexdigest()
    assert (said["exit"]["kind"], said["attested"]["image_id"]) == ("code failed", "sha256:0")
    assert made.report.audit is not None
    assert found.head == made.report.audit["head"]
    assert str(tmp_path) not in json.dumps(said)


def change_payload(made: Made) -> None:
    envelope = made.envelope
    payload = base64.b64decode(envelope["payload"]).replace(b"code failed", b"fine")
    made.file.write_text(json.dumps(envelope | {"payload": base64.b64encode(payload).decode()}))


def change_signature(made: Made) -> None:
    envelope = made.envelope
    envelope["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    made.file.write_text(json.dumps(envelope))


def drop_signatures(made: Made) -> None:
    made.file.write_text(json.dumps(made.envelope | {"signatures": []}))


def sign_with_another_key(made: Made) -> None:
    found, other = receipt.read(made.file.read_bytes()), keys.open_key(str(made.file.with_name("other.key")))
    made.file.write_text(receipt.make(found.subjects, found.predicate, other))


def change_type(made: Made) -> None:
    made.file.write_text(json.dumps(made.envelope | {"payloadType": "text/plain"}))


def change_output(made: Made) -> None:
    (made.output / "files/out.csv").write_bytes(b"a,c")


def remove_output(made: Made) -> None:
    (made.output / "analysis.ipynb").unlink()


def cut_audit(made: Made) -> None:
    made.folder.lines = made.folder.lines[:-1]


def change_audit(made: Made) -> None:
    made.folder.lines = [line.replace(b'"number":2', b'"number":3') for line in made.folder.lines]


CHANGES: dict[Callable[[Made], None], RecordCode] = {
    change_payload: RecordCode.SIGNATURE_WRONG,
    change_signature: RecordCode.SIGNATURE_WRONG,
    drop_signatures: RecordCode.SIGNATURE_WRONG,
    sign_with_another_key: RecordCode.SIGNATURE_WRONG,
    change_type: RecordCode.RECEIPT_MALFORMED,
    change_output: RecordCode.OUTPUT_DIFFERS,
    remove_output: RecordCode.OUTPUT_DIFFERS,
    cut_audit: RecordCode.END_CUT,
    change_audit: RecordCode.LINE_CHANGED,
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_changed_is_found(
    change: Callable[[Made], None], made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    change(made)
    assert made.verify("--json") == 1
    assert CHANGES[change].code in [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]]


def test_why_nothing_is_proven_is_said(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """The control is a verification without a key."""
    cli.main(["receipt", "verify", str(made.file), "--without-key"])
    assert "proven:     nothing: no key was given to hold it to" in capsys.readouterr().out
    change_payload(made)
    assert made.verify() == 1
    assert "proven:     nothing: it is not signed with the key that it was held to" in capsys.readouterr().out


def test_names_in_a_receipt_lead_nowhere_else(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever wrote it chose them; the control is the file itself, which is there and has that hash."""
    (made.file.with_name("secret")).write_bytes(b"x")
    sha256 = hashlib.sha256(b"x").hexdigest()
    for name in ("../secret", str(made.file.with_name("secret"))):
        made.file.write_text(receipt.make([(name, sha256)], {}, keys.read_key(str(made.folder.key))))
        words = ["receipt", "verify", str(made.file), "--key", str(made.folder.key), "--output", str(made.output)]
        assert cli.main(words) == 1
        assert "[output-differs]" in capsys.readouterr().out


@examples()
@given(
    st.one_of(
        st.binary(max_size=500),
        st.recursive(
            st.one_of(st.none(), st.text(max_size=20), st.integers()),
            lambda inner: st.one_of(
                st.lists(inner, max_size=4),
                st.dictionaries(
                    st.sampled_from(("payload", "payloadType", "signatures", "sig", "_type")), inner, max_size=4
                ),
            ),
            max_leaves=10,
        ),
    )
)
def test_what_is_no_receipt_is_refused_in_one_way(value: Any) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(ValueError, match=r"\S"):
        receipt.read(data)


def test_a_receipt_that_cannot_be_signed_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keys.RecordKey, "public", None)
    (tmp_path / "script.py").write_text("1")
    words = ["run", str(tmp_path / "script.py"), "--receipt", str(tmp_path / "receipt.json")]
    assert cli.main([*words, "--output", str(tmp_path / "out"), "--audit-key", str(tmp_path / "key")]) == 2
    assert "cryptography" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "receipt.json").exists()
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigurationError):
        receipt.make([], {}, keys.open_key(str(tmp_path / "key")))


@pytest.mark.parametrize(
    ("receipt_file", "why"),
    [
        ("report.json", "the receipt would replace"),
        ("x/../report.json", "the receipt would replace"),
        ("script.py", "the receipt would replace"),
        ("out/script.ipynb", "the executed notebook would replace"),
        ("out/files/receipt.json", "the receipt lies where cells choose the names of files"),
    ],
)
def test_a_receipt_takes_the_place_of_nothing_else(
    receipt_file: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("x", "out/files"):
        Path(folder).mkdir(parents=True)
    Path("script.py").write_text("1")
    words = ["run", "script.py", "--output", "out", "--report", "report.json", "--receipt", receipt_file]
    assert cli.main([*words, "--audit-key", str(tmp_path / "key")]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert Path("script.py").read_text() == "1"
    assert not Path("out/script.ipynb").exists()
    assert not Path("out/files/receipt.json").exists()
