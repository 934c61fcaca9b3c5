"""Names of columns: which two are the ends of edges, and which are none.

One table and one rule, for text, Parquet and frames alike. Two columns whose names are a pair of
words are the ends. Without such a pair they are the two columns that remain when those of times,
weights and row ids are left out. Any other number that remains is refused.

Names also tell whether the ends are two kinds of nodes: read as one kind, user 7 and movie 7 would
be the same node, and nothing in the result would tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _pairs(words: str) -> tuple[tuple[str, str], ...]:
    pairs = (pair.split() for pair in words.split(","))
    return tuple((source, destination) for source, destination in pairs)


# Both ends are the same kind of nodes, which one of the words names.
_OF_ONE_KIND = _pairs("user friend, person friend, member friend")
# Words that tell two columns of one name apart, as in ``user_a`` and ``user_b``.
_MARKS = _pairs("u v, s t, i j, a b, 0 1, 1 2")
# Source and destination, in the order in which they are looked for.
_PAIRS = (
    *_pairs(
        "source target, source destination, source dest, source sink, src dst, src dest, src tgt, "
        "from to, head tail, subject object, sender receiver, sender recipient, payer payee, "
        "payer recipient, debtor creditor, buyer seller, caller callee, follower followee, "
        "follower followed, follower following"
    ),
    *_OF_ONE_KIND,
    *_pairs(
        "rater ratee, truster trustee, trustor trustee, citing cited, cites cited, "
        "referrer referred, parent child, prev next, ancestor descendant, predecessor successor, "
        "origin destination, orig dest, ego alter, initiator responder, row col, row column, "
        "left right, first second, start end, begin end"
    ),
    *_MARKS,
)
# These words alone are a span of time, or columns without names.
_NOT_ALONE = _set("start end begin 0 1 2")
# Two of many columns that are numbered.
_NUMBERED = _set("f x feat feature col column dim attr var")
_SIDES = frozenset(word for pair in _PAIRS if pair not in _OF_ONE_KIND for word in pair)
_ID_WORDS = _set("id ids idx index key no nr num number code")
_NODE_WORDS = _set("node nodes vertex vertices endpoint edge stop")
_VALUES = _set(
    "time times timestamp timestamps ts date datetime day month year hour minute epoch created "
    "updated modified when since until duration age weight weights w wt amount amt value price "
    "cost fee balance score scores rating ratings stars count counts cnt freq frequency distance "
    "dist length similarity prob probability confidence strength total sum quantity qty"
)
_KINDS = _set("label labels type types kind class relation rel predicate sign status text comment")
_ROWS = _set("tx txn txid transaction row rowid record eid uuid guid")
_HEADER = frozenset(
    f"{word}{end}"
    for word in _set("source target src dst from to head tail subject object node")
    for end in ("", "_id", "id", "nodeid")
) | _set("id label weight time timestamp relation predicate u v")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_INDEX_NAME = re.compile(r"(^|_)(idx|index|indices)(_|$)")
_NEO4J = re.compile(r".*:(ID|START_ID|END_ID|TYPE|LABEL)(\(.*\))?")


@cache
def words_of(name: str) -> list[str]:
    """The words of a name, ``["user", "id"]`` of ``userID`` and ``userid``."""
    words = " ".join(_WORD.findall(name.partition("(")[0])).lower()
    return re.sub(r"(\w{3})(ids?|idx)\b", r"\1 \2", words).split()


def kind_of(name: str) -> str:
    """The nodes that a column of ids is of, by its name; empty if that says nothing of them."""
    others = _ID_WORDS | _NODE_WORDS | _SIDES | {"name"}
    return "_".join(word for word in words_of(name) if word not in others and len(word) > 1)


def is_header(cells: Sequence[str]) -> bool:
    """Whether one of the cells of a row is called as a column usually is."""
    return any(cell.lower() in _HEADER or _NEO4J.fullmatch(cell) for cell in cells)


def is_relation(name: str) -> bool:
    """Whether a column is called as what stands between head and tail."""
    return not {"relation", "rel", "predicate"}.isdisjoint(words_of(name))


def is_index_name(name: str) -> bool:
    """Whether an attribute is called like a set of nodes (``train_idx``)."""
    return _INDEX_NAME.search(name) is not None


def is_neo4j_id(name: str) -> bool:
    """Whether a column is the id of nodes in a file that Neo4j imports."""
    return re.fullmatch(r".*:ID(\(.*\))?", name) is not None


def are_numbered(names: Sequence[str]) -> bool:
    """Whether columns have numbers for names: ``0`` and ``1``, or ``f0`` and ``f1``."""
    stems = {re.sub(r"\d+", "", name) for name in names}
    return len(stems) <= 1 and all(re.search(r"\d", name) for name in names)


def ends_of(
    names: Sequence[str],
    holds_ids: Callable[[int], bool | None],
    given: Sequence[int | None],
    taken: Collection[int],
    kinds: tuple[str, str],
) -> list[int]:
    """The columns of sources and of destinations; more or fewer than two where that is in doubt.

    Args:
        names: The names of all columns.
        holds_ids: Whether a column holds ids: True, False, or None if its numbers might be some.
        given: The columns that are known.
        taken: Columns that are attributes.
        kinds: Node types of the two ends, empty if they have none.
    """
    for pair in (kinds, *_PAIRS) if kinds[0] != kinds[1] else _PAIRS:
        found = _matches(names, holds_ids, pair, given)
        if found:
            return [*found[0]] if len(found) == 1 else sorted({at for two in found for at in two})
    words = [set(words_of(name)) for name in names]
    left = [
        at
        for at in range(len(names))
        if at not in taken and at not in given and not words[at] & (_VALUES | _ROWS)
    ]
    left = [at for at in left if holds_ids(at) is not False]
    needed, certain = given.count(None), [at for at in left if holds_ids(at)]
    left = certain if len(certain) >= needed else left
    if len(left) != needed:
        return [*(at for at in given if at is not None), *left]
    rest = iter(left)
    return [next(rest) if at is None else at for at in given]


def _matches(
    names: Sequence[str],
    holds_ids: Callable[[int], bool | None],
    pair: tuple[str, str],
    given: Sequence[int | None],
) -> list[tuple[int, int]]:
    """Columns whose names have the words of ``pair``, those that have little else before others."""
    for level in range(3):
        sides: list[dict[int, set[str]]] = []
        for side, known in zip(pair, given, strict=True):
            rests = {at: _rest(name, side, level) for at, name in enumerate(names)}
            sides.append(
                {
                    at: rest
                    for at, rest in rests.items()
                    if rest is not None and known in (None, at) and holds_ids(at) is not False
                }
            )
        found = [
            (src, dst)
            for src, rest in sides[0].items()
            for dst, other in sides[1].items()
            if src != dst and (pair not in _MARKS or (rest == other and not rest & _NUMBERED))
        ]
        if found:
            return found
    return []


def _rest(name: str, side: str, level: int) -> set[str] | None:
    """The words of a name besides ``side``; None if it is not called so.

    Level 0 takes a name of nothing else, 1 words for ids and nodes beside it, 2 all but values.
    """
    if level == 0:
        return set() if name.lower() == side and side not in _NOT_ALONE else None
    words, own = set(words_of(name)), set(words_of(side))
    rest = words - own
    if not own <= words or not (rest or side not in _NOT_ALONE):
        return None
    is_clear = not rest & (_VALUES | _KINDS) if level == 2 else rest <= _ID_WORDS | _NODE_WORDS
    return rest if is_clear else None


def two_kinds(names: tuple[str, str], relation: str) -> tuple[str, str, str] | None:
    """The edge type that two columns are of by their names; None if these do not say two kinds.

    Args:
        names: Names of the columns; empty where they have none.
        relation: The name of the edges.
    """
    src, dst = (kind_of(name) for name in names)
    is_one = any(_matches(names, lambda at: True, pair, (0, 1)) for pair in _OF_ONE_KIND)
    if not (src and dst) or src == dst or is_one:
        return None
    return src, "_".join(re.findall(r"\w+", relation)) or "to", dst


def describe_two_kinds(names: tuple[str, str], edge_type: tuple[str, str, str]) -> str:
    """A note on two kinds of nodes: columns, and how to keep the kinds apart."""
    return (
        f"columns {names[0]!r} and {names[1]!r} look like two kinds of nodes, and an id that is in "
        f"both is one node here; to keep them apart, pass edge_type={edge_type} "
        f"(--edge-type {','.join(edge_type)})"
    )
