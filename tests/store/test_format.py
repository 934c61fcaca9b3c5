"""Opening refuses a damaged store: every damage of a header or store.json has its own words."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_files import edit_schema, field, not_opened, overwrite, reseal, set_field

import pyg_graphzero as gz
from pyg_graphzero import FormatError, _core
from pyg_graphzero.store.columns import view_column

X = "node/x.gd"
TOPOLOGY = "edge/topology.gl"


def open_file(path: Path) -> Any:
    return (_core.Topology if path.suffix == ".gl" else _core.Column).open(str(path))


def open_store(path: Path) -> gz.Store:
    """The store that a file is of."""
    return gz.open(next(each for each in path.parents if each.name == "store"))


def refused(path: Path, opener: Callable[[Path], Any] = open_store) -> str:
    """Why ``opener`` refuses ``path``: the message behind "path: "."""
    with pytest.raises(FormatError) as caught:
        opener(path)
    assert caught.value.path == str(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {caught.value.field}: found ")
    assert ", expected " in message
    return message.removeprefix(f"{path}: ")


class TestSize:
    @pytest.mark.parametrize("name", [X, TOPOLOGY])
    @pytest.mark.parametrize("length", [0, 64, 4095, 4096, 5000, -1, 8201, 12297])
    def test_cut_short_and_too_long(self, store, name, length):
        path = store / name
        full = path.stat().st_size
        size = length if length >= 0 else full + length
        os.truncate(path, size)
        assert refused(path) == (
            f"file size: found {size} bytes, expected {full} bytes (by store.json)"
        )
        expected = "at least a header of 4096" if size < 4096 else full
        words = f"file size: found {size} bytes, expected {expected} bytes"
        assert refused(path, open_file).startswith(words)
        # Also when store.json was made to agree with the damage.
        edit_schema(store, lambda body: body["files"][name].update(bytes=size))
        if size >= 4096:
            assert refused(path).startswith(words)


class TestHeader:
    def test_magic(self, store):
        """An archive, and a topology where a column belongs."""
        overwrite(store / X, 0, b"PK\x03\x04GZIP")
        words = "magic: found bytes {}, expected bytes 89 47 5a 44 0d 0a 1a 0a"
        assert refused(store / X) == words.format("50 4b 03 04 47 5a 49 50")
        shutil.copy(store / TOPOLOGY, store / X)
        reseal(store)
        assert refused(store / X) == words.format("89 47 5a 4c 0d 0a 1a 0a")

    def test_header_hash(self, store):
        path = store / X
        raw = path.read_bytes()
        hash_is = field("header_hash", path).read(raw)
        overwrite(path, 4088, (hash_is ^ 1).to_bytes(8, "little"))
        words = f"header_hash: found {hash_is ^ 1:016x}, expected {hash_is:016x}"
        assert refused(path) == f"{words} (by store.json)"
        reseal(store)
        words = f"header_hash: found 0x{hash_is ^ 1:016x}, expected 0x{hash_is:016x}"
        assert refused(path) == f"{words}; the header is damaged"

    @pytest.mark.parametrize("name", [X, TOPOLOGY])
    def test_every_byte_flipped(self, store, name):
        path = store / name
        raw = path.read_bytes()[:4096]
        with path.open("r+b", buffering=0) as file:
            for at in range(4096):
                for flip in (1 << (at % 8), 0xFF):
                    os.pwrite(file.fileno(), bytes([raw[at] ^ flip]), at)
                    with pytest.raises(FormatError) as caught:
                        open_file(path)
                    expected = "magic" if at < 8 else "header_hash"
                    expected = {8: "version", 12: "byte_order"}.get(at // 4 * 4, expected)
                    assert (caught.value.path, caught.value.field) == (str(path), expected)
                os.pwrite(file.fileno(), raw[at : at + 1], at)
        assert open_file(path).path == str(path)


FORGED_FIELDS = [
    *((TOPOLOGY, {"version": found}, f"version: found {found}, expected 1; the file was written by")
      for found in (0, 2, 2**32 - 1)),
    (X, {"byte_order": 0x0D0C0B0A}, "byte_order: found 0x000000000d0c0b0a, expected 0x0"),
    # 2^40 rows in a file of 8 KiB, everything else consistent as far as a forger can.
    (X, {"shape[0]": 2**40, "data_bytes": 2**40 * 28}, "checksums_offset: found 8192, expected 30"),
    (X, {"num_dims": 9}, "num_dims: found 9, expected at most 8"),
    *((X, {"dtype": found}, f"dtype: found {found}, expected a dtype code of format v1 (1-21)")
      for found in (0, 22)),
    (X, {"encoding": 1}, "encoding: found 1 of float32, expected float16 or bfloat16"),
    (X, {"encoding": 2}, "encoding: found 2 of float32, expected int8"),
    (X, {"encoding": 3}, "encoding: found 3, expected 0 to 2; the file was written by a newer"),
    *((X, {"row_stride": found}, f"row_stride: found {found}, expected at least row_bytes (28)")
      for found in (27, 30)),
    (X, {"row_stride": 32}, "data_bytes: found 1400, expected 1600"),
    (X, {"shape[1]": 2**62}, f"shape: found 200 x {2**62} bytes, expected a size below 2^63"),
    (X, {"shape[0]": 2**62}, f"shape: found 4 x {2**62} bytes, expected a size below 2^63"),
    # A zero beside it must not hide a product that overflows.
    (X, {"num_dims": 4, "shape[0]": 0, "shape[1]": 2**40, "shape[2]": 2**40},
     f"shape: found {2**42} x {2**40} bytes, expected a size below 2^63"),
    (X, {"shape[0]": 2**64 - 1, "shape[1]": 0, "row_bytes": 0, "row_stride": 0, "data_bytes": 0},
     f"shape: found 4 x {2**64 - 1} bytes, expected a size below 2^63"),
    (X, {"data_offset": 8192}, "data_offset: found 8192, expected 4096"),
    (X, {"checksums_offset": 4096, "num_blocks": 0}, "file_bytes: found 8200, expected 4096"),
    (X, {"checksums_offset": 8193}, "checksums_offset: found 8193, expected a multiple of 4096"),
    (X, {"checksums_offset": 0}, "checksums_offset: found 0, expected a multiple of 4096 inside"),
    (X, {"block_bytes": 0}, "block_bytes: found 0, expected 1048576"),
    (TOPOLOGY, {"flags": 1}, "flags: found 1, expected 0"),
    (TOPOLOGY, {"index_bytes": 2}, "index_bytes: found 2, expected 0, 8, or 4 for at most 2^32"),
    (TOPOLOGY, {"num_src": 2**33}, "index_bytes: found 4, expected 0, 8, or 4 for at most 2^32"),
    (TOPOLOGY, {"num_src": 2**63}, f"num_src: found {2**63} + 0 bytes, expected a size below 2^63"),
    (TOPOLOGY, {"num_dst": 2**64 - 1}, f"num_dst: found {2**64 - 1} + 1 bytes, expected a size"),
    (TOPOLOGY, {"num_dst": 2**61}, f"num_dst: found {2**61 + 1} x 8 bytes, expected a size below"),
    (TOPOLOGY, {"num_edges": 2**62}, f"num_edges: found {2**62} x 4 bytes, expected a size below"),
    (TOPOLOGY, {"num_src": 0}, "num_edges: found 200, expected 0 between node types of which one"),
    (TOPOLOGY, {"num_src": 51}, "num_src, num_dst, num_edges: found (51, 50, 200), expected"),
    (TOPOLOGY, {"indptr_offset": 0}, "indptr_offset: found 0, expected 4096"),
    (TOPOLOGY, {"indices_offset": 4096}, "indices_offset: found 4096, expected 8192"),
]  # fmt: skip


class TestForgedHeaders:
    """Fields that are wrong although the header hash and store.json agree with them."""

    @pytest.mark.parametrize(("name", "changes", "expected"), FORGED_FIELDS)
    def test_words(self, store, name, changes, expected):
        for key, value in changes.items():
            set_field(store / name, key, value)
        reseal(store)
        assert refused(store / name).startswith(expected)

    def test_unused_dimensions_are_ignored(self, store):
        set_field(store / X, "shape[5]", 2**64 - 1)
        set_field(store / X, "reserved", 7)
        reseal(store)
        assert gz.open(store).data().x.shape == (50, 7)

    def test_the_writer_takes_what_can_be_opened(self, tmp_path):
        for shape in ((0, 2**40), (2**40, 0), (0,), (3, 0, 5)):
            file = tmp_path / f"{shape}.gd"
            _core.ColumnWriter(str(file), "float32", list(shape)).finish()
            assert view_column(open_file(file)).shape == shape
        for shape in ((2**62, 4), (0, 2**62, 4), (1,) * 9):
            with pytest.raises(ValueError, match=r"size below 2\^63|at most 8"):
                _core.ColumnWriter(str(tmp_path / f"{shape}.gd"), "float32", list(shape))


class TestColumnsOfTheSchema:
    """Files that are right in themselves but not what store.json needs."""

    @pytest.mark.parametrize(
        ("name", "other", "expected"),
        [
            ("node/x.gd", "edge/weight.gd", "shape: found [200], expected 50 rows"),
            ("edge/weight.gd", "node/x.gd", "shape: found [50, 7], expected 200 rows"),
            ("node/train_idx.gd", "node/x.gd",
             "dtype, shape: found float32 [50, 7], expected int64 [any]"),
            ("node/id_offsets.gd", "node/y.gd", "shape: found [50], expected 51 rows"),
            ("node/ids.gd", "node/y.gd", "dtype, shape: found int64 [50], expected uint8 [any]"),
            ("edge/edge_id.gd", "edge/weight.gd",
             "dtype, shape: found float32 [200], expected int32 or int64 [any]"),
        ],
    )  # fmt: skip
    def test_another_column(self, store, name, other, expected):
        shutil.copy(store / other, store / name)
        reseal(store)
        assert refused(store / name).startswith(expected)

    def test_counts_of_the_schema(self, store):
        edit_schema(store, _set("edge_types", 0, "num_edges", to=199))
        not_opened(store, r"\(50, 50, 200\), expected \(50, 50, 199\)")
        edit_schema(store, _set("node_types", 0, "num_nodes", to=49))
        not_opened(store, r"\(50, 50, 200\), expected \(49, 49, 199\)")


_NOTHING = object()


def _set(*keys: Any, to: Any = _NOTHING) -> Callable[[dict[str, Any]], None]:
    """Changes or removes a member of ``store.json``."""

    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        if to is _NOTHING:
            del body[keys[-1]]
        else:
            body[keys[-1]] = to

    return change


FORGED_DOCUMENTS = [
    (_set("format", to="zarr"), "format: found 'zarr', expected 'pyg_graphzero'"),
    (_set("version", to=2), "version: found 2, expected 1; written by a newer release: upgrade"),
    (_set("flags"), "flags: found nothing, expected a value"),
    (_set("flags", to={}), "flags: found {}, expected list"),
    (_set("flags", to=["edge_ids_absent", "tiles"]), "flags: found 'tiles', expected one of"),
    (_set("flags", to=[["tiles"]]), "flags: found ['tiles'], expected one of adopted_rows,"),
    (_set("flags", to=["adopted_rows"]), "flags: found ['adopted_rows'], expected [] by the rest"),
    (_set("version", to="1"), "version: found '1', expected int"),
    (_set("version", to=True), "version: found True, expected int"),
    (_set("is_hetero", to=0), "is_hetero: found 0, expected bool"),
    (_set("is_hetero", to=True), "is_hetero: found true with an unnamed type, expected a name"),
    (_set("node_types", to={}), "node_types: found {}, expected list"),
    (_set("node_types", to=[]), "is_hetero: found false with named types, expected one unnamed"),
    (_set("node_types", 0, to=3), "node_types[0]: found int, expected an object"),
    (_set("node_types", 0, "name", to="paper"), "is_hetero: found false with named types,"),
    (_set("node_types", 0, "num_nodes", to=-1), "node_types[0].num_nodes: found -1, expected a"),
    (_set("node_types", 0, "num_nodes", to=2**63), f"node_types[0].num_nodes: found {2**63},"),
    (_set("node_types", 0, "num_nodes", to=50.0), "node_types[0].num_nodes: found 50.0, expected"),
    (_set("node_types", 0, "attrs", to=["x"]), "node_types[0].attrs: found ['x'], expected dict"),
    (_set("node_types", 0, "attrs", "x", to=None), "node_types[0].attrs['x']: found None,"),
    (_set("edge_types", 0, "name", to=["a", "b"]), "edge_types[0].name: found ['a', 'b'],"),
    (_set("edge_types", 0, "edge_ids", to=0), "edge_types[0].edge_ids: found 0, expected bool"),
    (_set("edge_types", 0, "edge_ids", to=False), "flags: found [], expected ['edge_ids_absent']"),
    (lambda body: (body["edge_types"][0].update(edge_ids=False),
     body.update(flags=["edge_ids_absent"])), "edge_types[0].edge_ids: found false beside edge_id"),
    (_set("edge_types", 0, "topology", to=7),
     "edge_types[0].topology: found 7, expected a file path inside the store"),
    (_set("graph_attrs", to={"a": 1}), "graph_attrs['a']: found 1, expected one of file, value"),
    (_set("graph_attrs", to={"a": {"file": "/etc/passwd"}}), "graph_attrs['a'].file: found"),
    (_set("files", X, "encoding", to=5), "files['node/x.gd'].encoding: found 5, expected dict"),
    (_set("files", X, to=8200), "files['node/x.gd']: found int, expected an object"),
    (_set("files", X), "files: found no entry for 'node/x.gd', expected one"),
    (_set("node_types", 0, "ids"), "node_types[0].ids: found nothing, expected a value"),
    (_set("edge_types", 0, "num_edges"),
     "edge_types[0].num_edges: found nothing, expected a value"),
]  # fmt: skip


class TestSchema:
    @pytest.mark.parametrize(
        "text",
        ["", "{", "not json", "[" * 100_000, "1" * 5000, "\xff\xfe", "[]", "null", "3", '"s"'],
        ids=lambda text: text[:9],
    )
    def test_no_document(self, store, text):
        (store / "store.json").write_bytes(text.encode("latin-1"))
        message = refused(store / "store.json")
        if text in ("[]", "null", "3", '"s"'):
            kind = type(json.loads(text)).__name__
            assert message == f"document: found {kind}, expected an object"
        else:
            assert message.startswith("document: found no valid JSON (")
            assert message.endswith("), expected a JSON object")

    def test_edited_by_hand(self, store):
        edit_schema(store, _set("node_types", 0, "num_nodes", to=49), rehash=False)
        assert refused(store / "store.json").endswith("; the document was changed")

    @pytest.mark.parametrize(("change", "expected"), FORGED_DOCUMENTS)
    def test_forged(self, store, change, expected):
        edit_schema(store, change)
        assert refused(store / "store.json").startswith(expected)

    @pytest.mark.parametrize(
        "key",
        ["format", "version", "flags", "checksum", "is_hetero", "node_types", "edge_types",
         "graph_attrs", "files", "adopted", "created_by"],
    )  # fmt: skip
    def test_missing_member(self, store, key):
        edit_schema(store, _set(key), rehash=key != "checksum")
        message = refused(store / "store.json")
        assert message.startswith(f"{key}: found nothing, expected ")

    @pytest.mark.parametrize(
        "name", ["../x.gd", "/etc/passwd", "node/../../x.gd", "", ".", "node/x\0.gd", "..", 5]
    )
    def test_files_outside_the_store(self, store, name):
        edit_schema(store, _set("node_types", 0, "attrs", "x", to=name))
        assert refused(store / "store.json") == (
            f"node_types[0].attrs['x']: found {name!r}, expected a file path inside the store"
        )

    def test_edge_type_between_unknown_nodes(self, tmp_path):
        golden = Path(__file__).parents[1] / "golden" / "v1" / "hetero"
        store = Path(shutil.copytree(golden, tmp_path / "store"))
        edit_schema(store, _set("node_types", 2, "name", to="journal"))
        assert refused(store / "store.json") == (
            "edge_types ('author', 'likes', 'venue'): found node type 'venue', expected one of "
            "['paper', 'author', 'journal']"
        )
        edit_schema(store, _set("node_types", 2, "name", to="paper"))
        assert refused(store / "store.json") == (
            "node_types: found ['paper', 'author', 'paper'], expected distinct names"
        )

    def test_members_it_does_not_know_are_ignored(self, store):
        edit_schema(store, _set("comment", to={"by": "another program", "pi": 3.14, "n": None}))
        assert gz.open(store).num_nodes == 50


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "error", "words"),
        [
            ("nothing", FileNotFoundError, "no such store"),
            (".", FileNotFoundError, "not a store"),
            (f"store/{X}", NotADirectoryError, "a store is a directory"),
        ],
    )
    def test_no_store(self, store, tmp_path, name, error, words):
        with pytest.raises(error, match=words) as caught:
            gz.open(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name)

    def test_missing_file(self, store):
        (store / X).unlink()
        assert refused(store / X) == ("file: found nothing, expected 8200 bytes")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_unreadable_file(self, store):
        (store / X).chmod(0)
        with pytest.raises(PermissionError) as caught:
            gz.open(store)
        assert caught.value.filename == str(store / X)

    def test_files_that_store_json_does_not_name_are_ignored(self, store):
        (store / "node/half-written.gd").write_bytes(b"\0" * 100)
        (store / "store.json.new").write_text("{")
        assert gz.open(store).num_nodes == 50
        assert gz.open(store).verify().ok

    def test_descriptors_are_given_back(self, store, tmp_path):
        def attempts(num_opens):
            for _ in range(num_opens):
                gz.open(tmp_path / "whole").close()
                with pytest.raises(FormatError):
                    gz.open(store)
                for name in (X, TOPOLOGY):
                    with pytest.raises(FormatError):
                        open_file(store / name)
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        shutil.copytree(store, tmp_path / "whole")
        for name in (X, TOPOLOGY):
            set_field(store / name, "file_bytes", 1)
        record = {"bytes": 1, "header_hash": "", "encoding": None}
        edit_schema(store, lambda body: body["files"].update({"edge/edge_id.gd": record}))
        assert attempts(20) == attempts(2)
