"""Pack editors/vscode into a .vsix, which is a zip with two documents about it: `python -m tests.support.vsix OUTPUT`.

What it takes of npm's packages is what `package-lock.json` says and `npm ci --omit=dev` has put there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from tests.support import ROOT

SOURCE = ROOT / "editors" / "vscode"
OWN = ("package.json", "extension.js", "README.md")
TYPES = {"js": "application/javascript", "json": "application/json", "md": "text/markdown", "txt": "text/plain"}
NEVER = ("/test/", "/.github/", "/typings/")
"""Of npm's packages: what no program of theirs loads."""


def files(source: Path = SOURCE) -> dict[str, bytes]:
    """Return what goes into it, by name: our files, the licence, and the packages that are installed beside them."""
    found = {f"extension/{name}": (source / name).read_bytes() for name in OWN}
    found["extension/LICENSE.txt"] = (ROOT / "LICENSE").read_bytes()
    for path in sorted((source / "node_modules").rglob("*")):
        name = path.relative_to(source).as_posix()
        kept = path.suffix in {".js", ".json", ".cjs"} or path.name.lower().startswith("licen")
        if path.is_file() and kept and not any(part in f"/{name}" for part in NEVER):
            found[f"extension/{name}"] = path.read_bytes()
    return found


def manifest(package: dict[str, Any]) -> str:
    """Return the document that VS Code's marketplace and command line read, made of package.json."""
    identity = {
        "Language": "en-US",
        "Id": package["name"],
        "Version": package["version"],
        "Publisher": package["publisher"],
    }
    engine = {"Id": "Microsoft.VisualStudio.Code.Engine", "Value": package["engines"]["vscode"]}
    kind = {"Id": "Microsoft.VisualStudio.Code.ExtensionKind", "Value": ",".join(package["extensionKind"])}
    return f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity {_written(identity)}/>
    <DisplayName>{escape(package["displayName"])}</DisplayName>
    <Description xml:space="preserve">{escape(package["description"])}</Description>
    <Categories>{escape(",".join(package["categories"]))}</Categories>
    <Properties><Property {_written(engine)}/><Property {_written(kind)}/></Properties>
    <License>extension/LICENSE.txt</License>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def pack(output: Path, source: Path = SOURCE) -> None:
    """Write the .vsix: the same bytes for the same files, whenever that is."""
    package = json.loads((source / "package.json").read_bytes())
    content = files(source)
    kinds = sorted({name.rpartition(".")[2] for name in content} | {"vsixmanifest"})
    defaults = "".join(
        f'<Default Extension=".{kind}" ContentType="{TYPES.get(kind, "application/octet-stream")}"/>' for kind in kinds
    )
    types = f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{defaults}</Types>'
    about = {"extension.vsixmanifest": manifest(package).encode(), "[Content_Types].xml": types.encode()}
    output.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(output, "w", ZIP_DEFLATED) as archive:
        for name, data in (about | content).items():
            archive.writestr(ZipInfo(name), data, ZIP_DEFLATED)


def _written(attributes: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
    print(sys.argv[1])
