"""Delimited text: every layout gives the same edges, every fault its exact error."""

from __future__ import annotations

import os

import chunks
import pytest
import torch
from convert_support import converted, edges_from, edges_of, kinds, refused, write

import pyg_graphzero as gz

PATH = [(0, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", "0,1\n1,2\n2,0\n"),
        ("no_newline_at_end.csv", "0,1\n1,2\n2,0"),
        ("crlf.csv", "0,1\r\n1,2\r\n2,0\r\n"),
        ("space_after_comma.csv", "0, 1\n1, 2\n2, 0\n"),
        ("space_everywhere.csv", " 0 , 1 \n 1 , 2 \n 2 , 0 \n"),
        ("tabs.tsv", "0\t1\n1\t2\n2\t0\n"),
        ("tabs_called_csv.csv", "0\t1\n1\t2\n2\t0\n"),
        ("semicolon.csv", "0;1\n1;2\n2;0\n"),
        ("pipe.txt", "0|1\n1|2\n2|0\n"),
        ("space.txt", "0 1\n1 2\n2 0\n"),
        ("runs_of_blanks.txt", "0  1\n 1 \t2 \n2   0\n"),
        ("blank_lines.csv", "\n0,1\n\n\n1,2\n   \n2,0\n\n"),
        ("comments.csv", "# a comment\n0,1\n# another, one\n1,2\n  # blanks before\n2,0\n#\n"),
        ("bom.csv", "\ufeff0,1\n1,2\n2,0\n"),
        ("bom_header.csv", "\ufeffsource,target\n0,1\n1,2\n2,0\n"),
        ("header.csv", "a,b\n0,1\n1,2\n2,0\n"),
        ("quoted.csv", '"0","1"\n"1","2"\n"2","0"\n'),
        ("columns_swapped.csv", "target,w,source\n1,9,0\n2,9,1\n0,9,2\n"),
        ("gzip.csv.gz", "0,1\n1,2\n2,0\n"),
        ("gzip.tsv.gz", "0\t1\n1\t2\n2\t0\n"),
        ("gzip_comment.txt.gz", "# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t0\n"),
        ("wide.csv", "0,1,7,8\n1,2,7,8\n2,0,7,8\n"),
    ],
)
def test_layouts_give_the_same_edges(tmp_path, name, text):
    summary = gz.convert(write(tmp_path / name, text), tmp_path / "store")
    assert edges_of(tmp_path / "store") == PATH
    assert (summary.num_nodes, summary.num_edges) == (3, 3)


# Each message names the place, the text found and the text expected.
FAULTS = [
    ("hex", "0,1\n1,0x1F\n", {}, "line 2, column 1: found '0x1F', expected an integer id"),
    ("hex_attr", "0,1,2\n1,0,0XB\n", {"edge_attrs": {"w": 2}}, "line 2, column 2: found '0XB'"),
    ("negative", "0,1\n-1,2\n", {}, "line 2, column 0: found id -1, expected an id of 0 or more"),
    ("fraction", "0,1\n1.7,2\n", {}, "line 2, column 0: found '1.7', expected an integer id"),
    ("fraction_first", "1.7,2\n", {}, "line 1, column 0: found '1.7', expected an integer id"),
    ("exponent", "0,1\n1e60,2\n", {}, "line 2, column 0: found '1e60', expected an integer id"),
    ("beyond_int64", "0,1\n\n0,9223372036854775808\n", {},
     "line 3, column 1: found '9223372036854775808', expected an integer id below 2**63"),
    ("text_id", "0,1\nabc,2\n", {}, "line 2, column 0: found 'abc', expected an integer id"),
    ("text_in_one_column", "12,ab\n", {}, "line 1, column 1: found id 'ab', expected integer ids"),
    ("missing_id", "0,1\n,2\n", {}, "line 2, column 0: found an empty cell, expected an integer"),
    ("missing_text", "a,b\n,d\n", {"header": False}, "line 2, column 0: found an empty cell"),
    ("missing_weight", "# head\n0,1,5\n1,2,\n", {"edge_attrs": {"w": 2}},
     "line 3, column 2: found an empty cell, expected a number"),
    ("missing_named", "src,dst,w\n0,1,5\n1,2,  \n", {"edge_attrs": ["w"]},
     "line 3, column 'w': found an empty cell, expected a number"),
    ("na", "0,1,NA\n", {"edge_attrs": {"w": 2}}, "line 1, column 2: found 'NA', expected a number"),
    ("weights_later", "0,1\n1,2,0.5\n", {}, "line 2: found 3 cells ('1,2,0.5'), expected 2 cells"),
    ("hash", "0,1,18446744073709551615\n", {"edge_attrs": {"h": 2}},
     "line 1, column 2: found '18446744073709551615', expected a number that int64 can hold"),
    ("too_few", "0,1,2\n1,2\n", {}, "line 2: found 2 cells ('1,2'), expected 3 cells"),
    ("one_column", "0\n1\n", {}, "line 1: found 1 column, expected 2 or more, separated by ','"),
    ("float32_overflow", "0,1,1.0\n0,1,1e60\n",
     {"edge_attrs": {"w": 2}, "dtypes": {"w": "float32"}},
     "line 2, column 2: found 1e+60, expected a value that float32 can hold"),
    ("fraction_into_int", "0,1,1\n0,1,1.7\n", {"edge_attrs": {"w": 2}, "dtypes": {"w": "int64"}},
     "line 2, column 2: found '1.7', expected an integer"),
    ("int8_overflow", "0,1,1\n0,1,300\n", {"edge_attrs": {"w": 2}, "dtypes": {"w": "int8"}},
     "line 2, column 2: found 300, expected a value that int8 can hold"),
    ("empty", "", {}, "file: found an empty file, expected at least one row"),
    ("comments_only", "# a\n\n", {}, "file: found an empty file, expected at least one row"),
    ("header_only", "src,dst\n", {}, "file: found no edges and no nodes, expected at least one"),
    ("open_quote", 'src,dst,name\n0,1,"a"\n1,2,"b\n2,0,c\n0,2,d\n', {},
     "line 3: found a quote that is not closed, expected an end of every quoted cell"),
    ("binary", b"0,1\n\0\1,2\n", {}, "line 2: found a zero byte: binary data, expected text"),
    ("latin1", "src,dst\na,b\nM\u00fcller,b\n".encode("latin-1"), {},
     "line 3, column 'src': found 'M\ufffdller', expected UTF-8 text"),
    ("utf16", "0,1\n".encode("utf-16"), {}, "line 1: found UTF-16 text, expected UTF-8"),
    ("old_mac", "0,1\r1,2\r", {}, "line 1: found a bare carriage return, expected lines ended by"),
    ("header_or_row", "alice,bob\ncarol,dave\n", {},
     "line 1: found 'alice,bob', which may be column names or a row, expected header=True or"),
    ("not_a_name", ',4"3\n1,8\n', {},
     "line 1: found ',4\"3', which may be column names or a row, expected header=True or"),
    ("odd_space", "0,1\n\u00a05,2\n", {}, "line 2, column 0: found '\\xa05', expected an integer"),
    ("no_such_column", "a,b\n0,1\n", {"src": "c"}, "columns: found a, b, expected a column 'c'"),
    ("no_such_position", "0,1\n", {"dst": 5},
     "columns: found 2 columns without names, expected a column 5"),
    ("same_column", "0,1\n", {"dst": 0}, "columns: found 0 for both ends, expected two columns"),
    ("beyond_num_nodes", "0,1\n1,7\n", {"num_nodes": 5},
     "line 2, column 1: found id 7, expected an id below 5, the number of nodes by num_nodes"),
    ("dense_but_huge", "0,1\n1,4000000000\n", {"ids": "dense"},
     "line 2, column 1: found id 4000000000, expected ids that fill 0…max"),
    ("second_header_with_a_name_twice", "a,a,b\n0,1,2\n", {"src": "a", "dst": "b"},
     "columns: found 2 named 'a', expected one. Select it by position instead."),
]  # fmt: skip


@chunks.both
@pytest.mark.parametrize(
    ("text", "options", "message"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS]
)
def test_faults_are_named(tmp_path, text, options, message):
    path = write(tmp_path / "edges.csv", text)
    assert refused(path, tmp_path / "store", **options).startswith(f"{path}: {message}")


def test_integer_column_turns_float_late(tmp_path):
    lines = [f"{i % 7},{i % 5},{i}" for i in range(150_000)]
    lines[-1] = "0,1,0.25"
    path = write(tmp_path / "edges.csv", "\n".join(lines))
    values = converted(path, tmp_path / "store", edge_attrs={"w": 2}, num_nodes=7).w
    assert values[-1] == 0.25
    assert values[:-1].tolist() == list(range(149_999))


def test_directory_missing_file_and_odd_suffix(tmp_path):
    refused(tmp_path, tmp_path / "store", r"directory: found no files, expected a dataset")
    refused(tmp_path / "nowhere.csv", tmp_path / "store", r"nowhere\.csv", error=FileNotFoundError)
    odd = write(tmp_path / "edges.xlsx", "0,1\n")
    refused(odd, tmp_path / "store", r"file name: found \.xlsx, expected \.csv")


def test_unix_times_keep_every_digit(tmp_path):
    rows = "0,1,1600000001,1289241911.72836, 0\n1,0,1600000003,1e60,+1.5\n"
    attrs = {"t": 2, "u": 3, "v": 4}
    gz.convert(write(tmp_path / "e.csv", rows), tmp_path / "store", edge_attrs=attrs)
    found = edges_of(tmp_path / "store", None, *attrs)
    assert found == [(0, 1, 1600000001, 1289241911.72836, 0.0), (1, 0, 1600000003, 1e60, 1.5)]


def test_weights_are_single_precision_and_matrices_are_made(tmp_path):
    path = write(tmp_path / "e.csv", "src,dst,f0,f1,w\n0,1,1,2,3\n1,0,4,5,6\n")
    summary = gz.convert(
        path, tmp_path / "store", edge_attrs={"edge_attr": "f*", "edge_weight": "w", "both": "f0,w"}
    )
    assert kinds(summary.info["edge_types"][0]) == {
        "edge_attr": "float32[2]",
        "edge_weight": "float32",
        "both": "int64[2]",
    }
    data = gz.open(tmp_path / "store").data()
    assert data.edge_attr.tolist() == [[1, 2], [4, 5]]
    assert data.both.tolist() == [[1, 3], [4, 6]]


def test_names_in_a_comment_above_the_data(tmp_path):
    path = write(tmp_path / "e.txt", "# Directed graph\n# FromNodeId\tToNodeId\n3\t1\n1\t0\n")
    gz.convert(path, tmp_path / "store", src="ToNodeId", dst="FromNodeId")
    assert edges_of(tmp_path / "store") == [(1, 3), (0, 1)]


def test_without_comments_a_hash_is_data(tmp_path):
    path = write(tmp_path / "e.csv", "#a,#b\n#b,#a\n")
    gz.convert(path, tmp_path / "store", comment=None, header=False)
    assert edges_of(tmp_path / "store") == [("#a", "#b"), ("#b", "#a")]


def test_lines_inside_quotes(tmp_path):
    path = write(tmp_path / "e.csv", '"a\n \nb","c\n#d"\n"c\n#d","a\n \nb"\n')
    words = r"line 4: found a line '#d\"' after an open quote, expected"
    refused(path, tmp_path / "s", words, header=False)
    gz.convert(path, tmp_path / "s", header=False, comment=None, delimiter="comma")
    assert edges_of(tmp_path / "s") == [("a\n \nb", "c\n#d"), ("c\n#d", "a\n \nb")]
    write(path, '# "quoted"\n"a","b"\n \n# note\n"b","a"\n# a,"note\n')
    assert edges_from(path, tmp_path / "t", header=False) == [("a", "b"), ("b", "a")]


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root reads anything")
def test_unreadable_file(tmp_path):
    path = write(tmp_path / "e.csv", "0,1\n")
    path.chmod(0)
    refused(path, tmp_path / "store", error=PermissionError)


@pytest.mark.parametrize("names", [("y", "edge_weight"), ("edge_weight", "y")])
def test_attributes_of_one_column_have_the_kinds_that_they_ask_for(tmp_path, names):
    """Whichever comes first: a label is an integer, a weight a float32."""
    path = write(tmp_path / "e.csv", "src,dst,r\n0,1,9007199254740993\n1,0,2\n")
    data = converted(path, tmp_path / "s", edge_attrs=dict.fromkeys(names, "r"))
    assert (data.y.dtype, data.edge_weight.dtype) == (torch.int64, torch.float32)
    assert data.y.tolist() == [9007199254740993, 2]
