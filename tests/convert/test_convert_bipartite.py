"""Two kinds of nodes in one edge list: noticed, and kept apart when told."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from commands import graphzero
from convert_support import edges_of, refused, write

import pyg_graphzero as gz
from pyg_graphzero import InputWarning
from pyg_graphzero.conversion.names import two_kinds

RATES = ("user", "ratings", "movie")


@pytest.fixture
def ratings(tmp_path):
    rows = "1,1,4.0,964982703\n1,3,4.0,964981247\n2,193609,3.5,964982224\n3,2,5.0,964983815\n"
    return write(tmp_path / "ratings.csv", f"userId,movieId,rating,timestamp\n{rows}")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("userId", "movieId"), ("user", "e", "movie")),
        (("user_id", "item_id"), ("user", "e", "item")),
        (("AuthorID", "PaperID"), ("author", "e", "paper")),
        (("userid", "itemid"), ("user", "e", "item")),
        (("src", "dst"), None),
        (("source_paper", "target_paper"), None),
        (("person1_id", "person2_id"), None),
        (("SOURCE_SUBREDDIT", "TARGET_SUBREDDIT"), None),
        (("citing", "cited"), None),
        (("from", "movie"), None),
        (("user_id", "friend_id"), None),
    ],
)
def test_names_tell_two_node_types(names, expected):
    assert two_kinds(names, "e") == expected


def test_merged_ids_are_warned_of(ratings, tmp_path):
    told = (
        r"ratings\.csv: columns 'userId' and 'movieId' look like two kinds of "
        r"nodes, and an id that is in both is one node here; to keep them apart, pass edge_type="
        r"\('user', 'ratings', 'movie'\) \(--edge-type user,ratings,movie\)"
    )
    with pytest.warns(InputWarning, match=told):
        summary = gz.convert(ratings, tmp_path / "s")
    assert "look like two kinds of nodes" in str(summary)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gz.convert(ratings, tmp_path / "t", edge_type=RATES)


def test_the_option_that_is_printed_keeps_them_apart(ratings, tmp_path):
    store = tmp_path / "a store"
    command = ["convert", ratings, "-o", store, "--edge-attr", "rating,timestamp"]
    run = graphzero(*command)
    assert run.stderr == ""
    (option,) = re.findall(r"\((--edge-type \S+)\)", run.output)
    graphzero(*command, *option.split(), "--force")
    rows = [(1, 1, 4, 964982703), (1, 3, 4, 964981247)]
    rows += [(2, 193609, 3.5, 964982224), (3, 2, 5, 964983815)]
    assert edges_of(store, RATES, "rating", "timestamp") == rows
    opened = gz.open(store)
    assert opened.ids("user").tolist() == [1, 2, 3]
    assert opened.ids("movie").tolist() == [1, 2, 3, 193609]


def test_tables_and_attributes_of_the_types(ratings, tmp_path):
    movies = write(
        tmp_path / "movies.csv", "title,movieId,year\na,3,1995\nb,1,1996\nc,193609,2018\n"
    )
    write(tmp_path / "movies.csv", movies.read_text() + "d,2,2000\n")
    ages = write(tmp_path / "ages.csv", "userId,age\n3,30\n1,10\n2,20\n")
    command = ["convert", ratings, "-o", tmp_path / "s", "--edge-type", ",".join(RATES)]
    command += ["--nodes", f"movie={movies}", "--node-id", "movie=movieId"]
    graphzero(*command, "--node-attr", "movie.year", "--node-attr", f"user.age={ages}:age")
    data = gz.open(tmp_path / "s").data()
    assert data["movie"].year.tolist() == [1995, 1996, 2018, 2000]
    assert data["user"].age.tolist() == [10, 20, 30]
    gz.convert(
        ratings,
        tmp_path / "t",
        edge_type="user,ratings,movie",
        nodes={"movie": {"file": movies, "id": "movieId"}},
        node_attrs={"movie.year": "year"},
        undirected=True,
    )
    assert edges_of(tmp_path / "t", ("movie", "rev_ratings", "user"))[0] == (1, 1)


def test_options_that_say_no_type(ratings, tmp_path):
    def told(**options):
        with pytest.raises(ValueError) as caught:
            gz.convert(ratings, tmp_path / "s", edge_type=RATES, **options)
        return str(caught.value)

    assert told(node_attrs={"x": np.ones(3)}) == (
        "node_attrs names 'x', but no node type: expected user.x or movie.x"
    )
    assert "nodes: found 'm.csv', expected node type = value beside edge_type" in told(
        nodes="m.csv"
    )
    assert "num_nodes: found 3, expected node type = value beside" in told(num_nodes=3)
    command = ["convert", ratings, "-o", tmp_path / "s", "--edge-type"]
    run = graphzero(*command, "a,b,c", "--nodes", "m.csv", code=2)
    assert "--nodes m.csv: expected TYPE=" in run.output
    run = graphzero(*command, "user,movie", code=2)
    assert 'edge_type: found \'user,movie\', expected ["src", "rel", "dst"]' in run.output


def test_text_beside_integers(tmp_path):
    path = write(tmp_path / "e.csv", "name,isbn\nann,4\nbob,5\n")
    refused(path, tmp_path / "s", r"two kinds of nodes, edge_type=\"user,to,item\"")
    gz.convert(path, tmp_path / "s", edge_type="person,has,book")
    assert edges_of(tmp_path / "s", ("person", "has", "book")) == [("ann", 4), ("bob", 5)]
