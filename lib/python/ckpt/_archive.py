# SPDX-License-Identifier: Apache-2.0
# A frozen state as torch.save writes it: PyTorch's own code lists the records, into an archive that only notes them. So
# their order, their names and their bytes are those of whatever version is there.
import inspect
import io
import pickle
import zipfile

import torch

from ._freeze import PROTOCOL, FrozenStorage, _Address

# Its parameters differ between versions; all of them but these have a default, or mean what torch.save's default does.
_MORE = {"_disable_byteorder_record": False}
_parameters = list(inspect.signature(torch.serialization._save).parameters.values())[4:]
_arguments = {p.name: _MORE[p.name] if p.name in _MORE else p.default for p in _parameters
              if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and (p.name in _MORE or p.default is not p.empty)}


def _last_records():
    """What PyTorch adds at the end of any archive that lacks it: its version, the byte order. A hash of all records, which newer ones add too and
    none asks for, is left out."""
    buffer = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(buffer)
    writer.write_end_of_file()
    with zipfile.ZipFile(buffer) as archive:
        records = [(info.filename.split("/", 1)[1], archive.read(info)) for info in archive.infolist()]
    return [(name, data, len(data)) for name, data in records if name != ".data/serialization_id"]


_last = _last_records()


class _Archive:
    """What PyTorch takes for an archive it writes to."""

    def __init__(self, freezer):
        self.freezer = freezer
        self.records = []

    def write_record(self, name, data, size):
        if name == "data.pkl":
            self.freezer.pickled = True
        if isinstance(data, _Address):
            data = data.storage
        elif isinstance(data, str):
            data = data.encode()
        elif not isinstance(data, (FrozenStorage, bytes)):
            raise TypeError(f"this PyTorch writes record {name} from {type(data).__name__}, which isn't known here")
        self.records.append((name, data, size))

    def set_min_version(self, version):
        pass

    def write_end_of_file(self):
        pass

    def archive_name(self):
        return "archive"


def records_of(frozen, freezer):
    """The archive's records in order: (name, bytes or FrozenStorage, size)."""
    archive = _Archive(freezer)
    torch.serialization._save(frozen, archive, pickle, PROTOCOL, **_arguments)
    written = {name for name, _, _ in archive.records}
    return archive.records + [record for record in _last if record[0] not in written]
