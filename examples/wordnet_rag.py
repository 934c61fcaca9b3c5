"""Graph RAG over WordNet from disk: PyG's ``RAGQueryLoader`` with the stores of ``gz.rag``.

    python examples/wordnet_rag.py "a large animal with a long trunk and tusks"
    python examples/wordnet_rag.py --compare    # indexes that are installed, against a scan

The shape of PyG's ``examples/llm/txt2kg_rag.py`` without its language models: a knowledge graph is
embedded once and converted; a query is encoded, the nearest nodes are retrieved, a subgraph is
sampled around them, and a filter turns that into text that a prompt would have as its context.
Words and meanings are two node types. In place of a sentence encoder, words are hashed into columns
and weighted by how rare they are: the same on every machine, and nothing is downloaded. Any object
with ``encode(texts) -> [n, width]`` does, such as PyG's ``SentenceTransformer``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.llm import RAGQueryLoader

import pyg_graphzero as gz
from wordnet import WordNet, read_wordnet

STORE = Path(__file__).resolve().parent / "out" / "wordnet_rag"
QUERIES = ["a large animal with a long trunk and tusks", "to move through water by using the arms"]


class HashedWords:
    """Stands in for a sentence encoder.

    Args:
        texts: Texts that say how rare a word is.
        width: Numbers of an embedding.
    """

    def __init__(self, texts: Sequence[str], width: int) -> None:
        self.width = width
        self.count = Counter(word for text in texts for word in set(text.split()))
        self.num_texts = len(texts)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of texts, ``float32 [len(texts), width]``."""
        rows, columns, weights = [], [], []
        for row, text in enumerate(texts):
            for word in text.lower().replace(",", "").split():
                weight = math.log(self.num_texts / (1 + self.count[word]))
                for salt in range(4):  # in several columns, up or down: few words are alike
                    code = crc32(f"{salt} {word}".encode())
                    rows.append(row)
                    columns.append(code % self.width)
                    weights.append(weight if code >> 20 & 1 else -weight)
        at = torch.tensor([rows, columns], dtype=torch.int64)
        x = torch.zeros(len(texts), self.width)
        return x.index_put_((at[0], at[1]), torch.tensor(weights), accumulate=True)


def graph_of(wordnet: WordNet, encoder: HashedWords) -> HeteroData:
    """Meanings and their relations, and the words that mean them."""
    data = HeteroData()
    data["synset"].x = encoder.encode(wordnet.definitions)
    data["word"].num_nodes = len(wordnet.words)
    data["word", "means", "synset"].edge_index = wordnet.word_synset
    for name, edge_index in wordnet.relations.items():
        data["synset", name, "synset"].edge_index = edge_index
    return data


class Describe:
    """The filter of the loader: what the subgraph says, as text."""

    def __init__(self, wordnet: WordNet) -> None:
        self.wordnet = wordnet

    def __call__(self, graph: HeteroData, query: str) -> HeteroData:
        """Adds ``desc``."""
        words, meanings = graph["word"].node_idx.tolist(), graph["synset"].node_idx.tolist()
        of_meaning: dict[int, list[str]] = {}
        for word, at in graph["word", "means", "synset"].edge_index.t().tolist():
            of_meaning.setdefault(at, []).append(self.wordnet.words[words[word]])
        texts = [self.wordnet.definitions[meaning] for meaning in meanings]
        names = [", ".join(of_meaning.get(at, [text])) for at, text in enumerate(texts)]
        lines = [f"{names[at]}: {text}" for at, text in enumerate(texts) if at in of_meaning]
        for source, relation, target in graph.edge_types:
            if source == target:
                pairs = graph[source, relation, target].edge_index.t().tolist()
                lines += [f"{names[a]} --{relation}--> {names[b]}" for a, b in pairs]
        graph.desc = "\n".join(lines)
        return graph


def compare(store: gz.Store, config: dict[str, Any], definitions: list[str]) -> None:
    """How many of the ten nearest each index finds, and in what time.

    Queries are every 500th definition, its first half.
    """
    texts = [" ".join(text.split()[: 1 + len(text.split()) // 2]) for text in definitions[::500]]
    queries = config["encoder_model"].encode(texts)
    exact: list[set[int]] = []
    for index in ("scan", "usearch", "faiss"):
        if index != "scan" and find_spec(index) is None:
            continue
        started = time.perf_counter()
        features = gz.rag.FeatureStore(store, index=index)
        features.config = config | {"k_nodes": 10}
        made, started = time.perf_counter() - started, time.perf_counter()
        nodes = [features.retrieve_seed_nodes(query)[0]["synset"] for query in queries]
        seconds = (time.perf_counter() - started) / len(queries)
        found = [set(each.tolist()) for each in nodes]
        exact = exact or found
        recall = sum(len(a & b) for a, b in zip(found, exact, strict=True)) / (10 * len(found))
        print(
            f"{index}: made in {made:.1f} s, {1000 * seconds:.1f} ms a query, recall {recall:.3f}"
        )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Graph RAG over WordNet, from disk.")
    parser.add_argument("queries", nargs="*", default=QUERIES)
    parser.add_argument("--k", type=int, default=3, help="nearest meanings of a query")
    parser.add_argument("--fanout", type=int, nargs="*", default=[2], help="by hop and edge type")
    parser.add_argument("--width", type=int, default=1024, help="numbers of an embedding")
    parser.add_argument("--index", default="auto", help="auto, scan, usearch or faiss")
    parser.add_argument("--memory", help="budget of the process, such as 2GB")
    parser.add_argument("--store", type=Path, default=STORE, help="where the store is written")
    parser.add_argument("--compare", action="store_true", help="indexes with a scan")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    args = parser.parse_args()
    if args.quick:
        args.width = 128
    return args


def main() -> None:
    args = parse_args()
    wordnet = read_wordnet()
    encoder = HashedWords(wordnet.definitions, args.width)
    args.store.parent.mkdir(parents=True, exist_ok=True)
    data = graph_of(wordnet, encoder)
    gz.convert(data, args.store, features="float16", both_directions=True, force=True)
    del data

    torch.manual_seed(0)
    store = gz.open(args.store, memory=args.memory)
    features = gz.rag.FeatureStore(store, index=args.index)
    config = {"k_nodes": args.k, "num_neighbors": args.fanout, "encoder_model": encoder}
    loader = RAGQueryLoader(
        graph_data=(features, gz.rag.GraphStore(store)),
        subgraph_filter=Describe(wordnet),
        config=config,
    )
    if args.compare:
        return compare(store, config, wordnet.definitions)
    for query in args.queries:
        started = time.perf_counter()
        graph = loader.query(query)
        seconds = time.perf_counter() - started
        counts = f"{graph.num_nodes} nodes, {graph.num_edges} edges, {seconds:.3f} s"
        print(f"\nQuery: {query} ({counts})\n{graph.desc}", flush=True)


if __name__ == "__main__":
    main()
