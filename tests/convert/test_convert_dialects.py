"""Text that is laid out otherwise: several characters between cells, other comments, times."""

from __future__ import annotations

from datetime import datetime, timezone

import chunks
import pytest
import torch
from convert_support import converted, edges_from, edges_of, refused, write

import pyg_graphzero as gz
from pyg_graphzero import InputError

pytestmark = chunks.both


@pytest.mark.parametrize("delimiter", [None, "::"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_two_colons(tmp_path, delimiter, end):
    rows = ["1::1193::5::978300760", "1::661::3::978302109", "2::1193::4::978298413", ""]
    path = write(tmp_path / "ratings.txt", end.join(rows))
    attrs = {"edge_weight": 2, "time": 3}
    gz.convert(path, tmp_path / "s", edge_type="u,r,i", edge_attrs=attrs, delimiter=delimiter)
    found = edges_of(tmp_path / "s", ("u", "r", "i"), "edge_weight", "time")
    assert found == [(1, 1193, 5, 978300760), (1, 661, 3, 978302109), (2, 1193, 4, 978298413)]
    movies = ['1::"Toy" Story: 1995::Animation|Comedy', "661::A, B::Drama", "1193::C::Action|X", ""]
    table = write(tmp_path / "movies.txt", end.join(movies))
    nodes = {"i": {"file": table, "header": False}}
    gz.convert(path, tmp_path / "t", edge_type="u,r,i", nodes=nodes, edge_attrs=attrs)
    assert gz.open(tmp_path / "t").ids("i").tolist() == [1, 661, 1193]


def test_faults_between_colons(tmp_path):
    path = write(tmp_path / "e.txt", "1::2::3\n4::5::6\n7::8\n9::x::1\n")
    with pytest.raises(InputError, match=r"line 3: found 2 cells \('7::8'\), expected 3 cells sep"):
        gz.convert(path, tmp_path / "s", header=False, delimiter="::")
    write(path, "1::2::3\n4::5::6\n9::x::1\n")
    refused(path, tmp_path / "s", "line 3, column 1: found 'x'", header=False, delimiter="::")
    with pytest.raises(ValueError, match="expected one character, or several such as '::'"):
        gz.convert(path, tmp_path / "t", delimiter="ab")


def test_a_single_colon_or_comma_is_not_two(tmp_path):
    path = write(tmp_path / "e.csv", "std::a,std::b\nstd::b,std::c\n")
    gz.convert(path, tmp_path / "s", header=False)
    assert edges_of(tmp_path / "s") == [("std::a", "std::b"), ("std::b", "std::c")]


def test_percent_signs(tmp_path):
    path = write(tmp_path / "out.txt", "% sym unweighted\n% 2 3 3\n1 2\n% amid\n2 3\n")
    assert "out.txt: 1 lines below its first row begin with '%': no data" in str(
        gz.convert(path, tmp_path / "s")
    )
    assert edges_of(tmp_path / "s") == [(1, 2), (2, 3)]
    path = write(tmp_path / "e.csv", "% src,dst,share\n1,2,5%\n")  # only lines that start with it
    with pytest.raises(InputError, match="line 2, column 'share': found '5%', expected a number"):
        gz.convert(path, tmp_path / "t", edge_attrs=["share"])


def test_zeros_before_an_id(tmp_path):
    path = write(tmp_path / "zip.csv", "src,dst\n00501,7\n501,12\n")
    summary = gz.convert(path, tmp_path / "s")
    told = "zip.csv: ids such as '00501' are numbers here; id_type='str' (--id-type str)"
    assert summary.notes == [f"{told} keeps their zeros"]
    assert len(gz.open(tmp_path / "s").ids()) == 3
    assert edges_from(path, tmp_path / "t", id_type="str")[0] == ("00501", "7")


def seconds(*when: int) -> int:
    return int(datetime(*when, tzinfo=timezone.utc).timestamp())


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2023-01-05", "1969-12-31"], [seconds(2023, 1, 5), seconds(1969, 12, 31)]),
        (["2023-01-05T10:20:30", "2023-01-05 10:20"],
         [seconds(2023, 1, 5, 10, 20, 30), seconds(2023, 1, 5, 10, 20)]),
        (["2023-01-05T10:20:30Z", "2023-01-05T10:20:30+02:00"],
         [seconds(2023, 1, 5, 10, 20, 30), seconds(2023, 1, 5, 8, 20, 30)]),
        (["2023-01-05T10:20:30.25", "2023-01-05"],
         [seconds(2023, 1, 5, 10, 20, 30) * 10**6 + 250_000, seconds(2023, 1, 5) * 10**6]),
    ],
)  # fmt: skip
def test_times(tmp_path, cells, expected):
    rows = "".join(f"{n},{n + 1},{cell}\n" for n, cell in enumerate(cells))
    path = write(tmp_path / "e.csv", f"src,dst,when\n{rows}")
    stored = converted(path, tmp_path / "s", edge_attrs={"time": "when"}, time_attr="time")
    assert stored.time.dtype == torch.int64
    assert stored.time.tolist() == expected
    write(path, path.read_text() + "7,8,\n8,9,soon\n")
    words = r"line 4, column 'when': found an empty cell, expected a d"
    refused(path, tmp_path / "t", words, edge_attrs={"time": "when"})
    with pytest.raises(InputError, match="found 'soon', expected a date or time of ISO 8601"):
        gz.convert(path, tmp_path / "t", edge_attrs={"time": "when"}, fill={"time": 0})


def test_times_of_two_sorts(tmp_path):
    path = write(
        tmp_path / "e.csv", "src,dst,t\n" + "0,1,2023-01-05\n" * 60 + "1,2,2023-01-05T1Z\n"
    )
    words = r"line 62, column 't': found '2023-01-05T1Z', expected a da"
    refused(path, tmp_path / "s", words, edge_attrs=["t"])
