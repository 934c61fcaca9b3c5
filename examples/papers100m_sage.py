"""Train GraphSAGE on ogbn-papers100M from disk, on a machine with 16 GB; on several by torchrun.

    python examples/papers100m_sage.py papers100m --dataset_dir data --memory 10GB
    python examples/papers100m_sage.py papers100m --memory 10GB --checkpoint sage.pt
    torchrun --standalone --nproc-per-node 2 examples/papers100m_sage.py papers100m --memory 10GB
    graphzero shard papers100m -o shards --parts 2
    torchrun --standalone --nproc-per-node 2 examples/papers100m_sage.py shards

The model, the options and what they are by default are those of PyG's ``examples/ogbn_train.py``;
the graph is made undirected, as it is there. The first command converts the dataset if there is no
store yet. With a checkpoint the same command goes on where it was, in the middle of an epoch too,
with the batches that a run without interruption would have had. ``--memory`` is for all processes
of a machine together.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GraphSAGE
from tqdm import tqdm

import pyg_graphzero as gz
from ranks import Interrupt, MemoryPeak, Ranks, share_of

ENCODINGS = ("float32", "float16", "int8")
# Attribute of nodes that inference makes.
PREDICTION = "prediction"
# Options that must equal those of a checkpoint to resume it: they decide the batches and the model.
DECISIVE = (
    "fan_out",
    "batch_size",
    "hidden_channels",
    "dropout",
    "lr",
    "wd",
    "use_gat",
    "num_heads",
    "seed",
)


# Graph ------------------------------------------------------------------------------------------


def convert_command(args: argparse.Namespace, source: Path | str, store: Path | str) -> str:
    """The command that converts a dataset."""
    words = ["graphzero", "convert", str(source), "-o", str(store)]
    words += [] if args.use_directed_graph else ["--undirected", "--coalesce", "first"]
    words += ["--no-edge-ids"]
    words += ["--features", args.features] if args.features not in (None, "float32") else []
    return shlex.join(words)


def raw_dataset(args: argparse.Namespace) -> Path | None:
    """The directory that the dataset was unpacked to: the one named, or where ``ogb`` has it."""
    root = args.dataset_dir
    places = [root, root / "ogbn_papers100M", root / args.dataset_subdir / "ogbn_papers100M"]
    return next((place for place in places if (place / "raw").is_dir()), None)


def convert(args: argparse.Namespace) -> None:
    """Converts the dataset to the store."""
    path, raw = args.store, raw_dataset(args)
    if raw is None:
        sys.exit(
            f"{path}: found no store, and no dataset in --dataset_dir {args.dataset_dir}. Name "
            "the directory that has ogbn_papers100M by --dataset_dir, and the store is made"
        )
    if "RANK" in os.environ:
        sys.exit(
            f"{path}: found no store. Convert before torchrun:\n"
            f"  {convert_command(args, raw, path)}"
        )
    summary = gz.convert(
        raw,
        path,
        features=None if args.features == "float32" else args.features,
        memory=args.memory,
        undirected=not args.use_directed_graph,
        coalesce=None if args.use_directed_graph else "first",
        edge_ids=False,
    )
    print(summary, flush=True)


def open_store(args: argparse.Namespace, ranks_here: int) -> gz.Store:
    """The converted dataset, or its shards; converts it first where there is none."""
    path, is_sharded = args.store, (args.store / "shards.json").exists()
    if (path / "raw").is_dir():
        sys.exit(
            f"{path}: found a raw dataset directory, expected a converted store. Convert it:\n"
            f"  {convert_command(args, path, 'NEW_STORE')}"
        )
    if is_sharded and "RANK" not in os.environ:
        sys.exit(f"{path}: found shards, expected torchrun, with a rank for each of them")
    if not path.exists():
        convert(args)
    opened = gz.open_shards if is_sharded else gz.open
    store = opened(path, memory=args.memory, processes=ranks_here)
    data = store.data()
    if not isinstance(data, Data) or "x" not in data or "y" not in data:
        sys.exit(f"{path}: expected a homogeneous store with features x and labels y")
    if is_sharded or args.features is None:
        return store
    x = store.info()["node_types"][0]["attrs"]["x"]
    found = x.get("encoding", {}).get("encoding", x["dtype"])
    if args.features != found:
        sys.exit(
            f"{path}: found features as {found}, expected --features {args.features}. Leave "
            f"--features out, or convert to another store:\n"
            f"  {convert_command(args, raw_dataset(args) or 'RAW_DIR', 'NEW_STORE')}"
        )
    return store


def read_split(store: gz.Store) -> tuple[dict[str, Tensor], int]:
    """Training, validation and test nodes (``int64 [any]``), and the number of their classes."""

    def read(name: str, index: Tensor | None = None) -> Tensor:
        return store.feature_store.get_tensor(group_name=None, attr_name=name, index=index)

    nodes, num_classes = {}, 0
    index_sets = store.info()["node_types"][0]["index_sets"]
    for name in ("train", "val", "test"):
        is_set = f"{name}_idx" in index_sets
        found = read(f"{name}_idx") if is_set else read(f"{name}_mask").nonzero().view(-1)
        labels = read("y", found).view(-1)
        missing = ~(labels >= 0)  # NaN, too
        if missing.any():
            sys.exit(
                f"{store.path}: y[{int(found[missing][0])}]: found {labels[missing][0].item()}, "
                f"expected a class, for it is a node of the {name} split"
            )
        nodes[name] = found
        if len(labels) > 0:
            num_classes = max(num_classes, int(labels.max()) + 1)
    return nodes, num_classes


def make_data(store: gz.Store) -> Data:
    """The store's graph with features and labels, nothing else: batches contain only these."""
    data = store.data()
    for name in data.keys():  # noqa: SIM118 - a Data is not its keys
        if name not in ("x", "y", "edge_index", "num_nodes"):
            del data[name]
    return data


def make_generator(args: argparse.Namespace, rank: int, purpose: int) -> torch.Generator:
    """Randomness of its own for each rank and purpose: shuffles and neighbours follow from it."""
    entropy = np.random.SeedSequence((args.seed, rank, purpose)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(entropy) >> 1)


def make_loader(
    args: argparse.Namespace, data: Data, nodes: Tensor, **options: Any
) -> gz.loader.NeighborLoader:
    """Batches around some nodes, without edge ids, which this script does not use.

    The loader takes the first layer's means, which makes batches a third as large. Rows in shards
    come as they are.
    """
    is_whole = not (args.store / "shards.json").exists()
    return gz.loader.NeighborLoader(
        data,
        num_neighbors=args.fan_out,
        input_nodes=nodes,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        device=args.device,
        edge_ids=False,
        first_aggregation="mean" if is_whole and not args.use_gat else None,
        **options,
    )


def forward(model: torch.nn.Module, batch: Data) -> tuple[Tensor, Tensor]:
    """Logits of the seeds, which come first, and their labels."""
    size = batch.batch_size
    return model(batch.x, batch.edge_index)[:size], batch.y[:size].view(-1).long()


# Training ---------------------------------------------------------------------------------------


class Training:
    """A model, its data, and where its training stands."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.peak = MemoryPeak()
        self.interrupt = Interrupt()
        self.ranks = ranks = Ranks(args.device)
        self.store = open_store(args, ranks.local_size)
        self.nodes, num_classes = read_split(self.store)
        self.data = make_data(self.store)
        torch.manual_seed(args.seed)  # all ranks begin with the same weights
        kind, heads = (GAT, {"heads": args.num_heads}) if args.use_gat else (GraphSAGE, {})
        model = kind(
            in_channels=self.data.num_features,
            hidden_channels=args.hidden_channels,
            num_layers=args.num_layers,
            out_channels=num_classes,
            dropout=args.dropout,
            **heads,
        )
        self.model = gz.nn.accelerate(model.to(args.device))
        torch.manual_seed(args.seed + 1 + ranks.rank)  # dropout
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr, weight_decay=args.wd)
        self.loader = make_loader(
            args,
            self.data,
            share_of(self.nodes["train"], ranks.rank, ranks.size, pad=True),
            shuffle=True,
            generator=make_generator(args, ranks.rank, 0),
        )
        # Progress of the epoch, and the sum of this rank's losses in it.
        self.epoch = self.done = 0
        self.loss_sum = torch.zeros((), device=args.device)
        self.parallel: torch.nn.Module = self.model
        if args.checkpoint is not None and args.checkpoint.exists():
            self.resume()
        if ranks.size > 1:
            self.parallel = DistributedDataParallel(self.model)

    @property
    def decisive(self) -> dict[str, Any]:
        """Settings that a checkpoint must have been made with."""
        own = {name: getattr(self.args, name) for name in DECISIVE}
        return own | {"ranks": self.ranks.size, "train nodes": len(self.nodes["train"])}

    def save(self) -> None:
        """Writes the checkpoint, which is either the old one or the new one at any instant."""
        path = self.args.checkpoint
        if path is None:
            return
        own = {"loader": self.loader.state_dict(), "loss_sum": self.loss_sum.cpu()}
        own["rng"] = torch.get_rng_state()
        if self.args.device.type == "cuda":
            own["cuda_rng"] = torch.cuda.get_rng_state(self.args.device)
        of_ranks = self.ranks.gather(own)
        if self.ranks.rank == 0:
            checkpoint = {
                "made with": self.decisive,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "epoch": self.epoch,
                "done": self.done,
                "ranks": of_ranks,
            }
            beside = path.with_name(path.name + ".new")
            with open(beside, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        self.ranks.wait()  # no rank leaves, or trains on, before it is there

    def resume(self) -> None:
        """Goes on where the checkpoint was written."""
        path = self.args.checkpoint
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        for name, value in self.decisive.items():
            found = checkpoint["made with"].get(name)
            if found != value:
                sys.exit(
                    f"{path}: found a checkpoint made with {name}={found}, expected {value}; "
                    "change it back, or name another --checkpoint"
                )
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.epoch, self.done = checkpoint["epoch"], checkpoint["done"]
        own = checkpoint["ranks"][self.ranks.rank]
        self.loader.load_state_dict(own["loader"])
        self.loss_sum = own["loss_sum"].to(self.args.device)
        torch.set_rng_state(own["rng"])
        if "cuda_rng" in own:
            torch.cuda.set_rng_state(own["cuda_rng"], self.args.device)
        self.ranks.say(f"{path}: goes on in epoch {self.epoch + 1} after {self.done:,} batches")

    def bar(self, batches: Any, name: str, done: int = 0) -> tqdm:
        """A progress bar around batches, on one rank."""
        silent = None if self.ranks.rank == 0 else True
        return tqdm(
            batches, desc=name, initial=done, total=len(batches), unit="batch", disable=silent,
            mininterval=0.5, leave=False,
        )  # fmt: skip

    def train_epoch(self) -> bool:
        """Trains from where the epoch stands to its end; False where a signal ended it."""
        args, batches = self.args, len(self.loader)
        self.model.train()
        bar = self.bar(self.loader, f"epoch {self.epoch + 1}/{args.epochs}", self.done)
        shown = 0.0
        for batch in bar:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(*forward(self.parallel, batch))
            loss.backward()
            self.optimizer.step()
            self.loss_sum += loss.detach()
            self.done += 1
            self.peak.look()
            self.log(loss)
            if time.monotonic() - shown > 0.5 and not bar.disable:
                shown, verdict = time.monotonic(), self.loader.stats().verdict
                bar.set_postfix_str(f"loss {float(loss.detach()):.3f}, {verdict}")
            stops = self.ranks.any(self.interrupt.signal != 0)
            if stops or self.done % args.checkpoint_every == 0 or self.done == batches:
                self.save()
            if stops:
                return False
        return True

    def log(self, loss: Tensor) -> None:
        """A line of JSON for each batch of rank 0; those trained again after a kill come again."""
        if self.args.loss_log is not None and self.ranks.rank == 0:
            line = {"epoch": self.epoch, "batch": self.done - 1, "loss": float(loss.detach())}
            with open(self.args.loss_log, "a") as file:
                file.write(json.dumps(line) + "\n")

    @torch.no_grad()
    def evaluate(self, name: str, nodes: Tensor) -> tuple[int, int] | None:
        """How many of some nodes are classified right, and of how many; None after a signal.

        All ranks have a share, however many that are; the counts are those of all.
        """
        self.model.eval()
        # Every evaluation draws the same neighbours.
        generator = make_generator(self.args, self.ranks.rank, 1)
        share = share_of(nodes, self.ranks.rank, self.ranks.size, pad=False)
        correct = total = 0
        for batch in self.bar(make_loader(self.args, self.data, share, generator=generator), name):
            if self.interrupt.signal:
                break
            logits, labels = forward(self.model, batch)
            correct += int((logits.argmax(dim=1) == labels).sum())
            total += len(labels)
            self.peak.look()
        correct, total, signals = map(int, self.ranks.sum(correct, total, self.interrupt.signal))
        return None if signals else (correct, total)

    def run(self) -> bool:
        """Trains all epochs and says how well; False where a signal ended it."""
        args, ranks = self.args, self.ranks
        looks = {name: self.some(self.nodes[name]) for name in ("val", "test")}
        while self.epoch < args.epochs:
            if not self.train_epoch():
                return False
            (losses,) = ranks.sum(float(self.loss_sum))
            stats = self.loader.stats()
            words = [f"epoch {self.epoch + 1:2d}  loss {losses / self.done / ranks.size:.4f}"]
            begin = time.monotonic()
            if (self.epoch + 1) % args.eval_every == 0 or self.epoch + 1 == args.epochs:
                for name, nodes in looks.items():
                    counts = self.evaluate(name, nodes)
                    if counts is None:
                        return False
                    words.append(f"{name} {accuracy(counts)}")
            looking = f"and {time.monotonic() - begin:.1f} s for val and test"
            rate = f"{stats.batches_per_second:.1f} batches/s"
            words += [f"{stats.elapsed:.1f} s", *([looking] if args.verbose else []), rate]
            ranks.say("  ".join([*words, stats.verdict]))
            self.epoch, self.done = self.epoch + 1, 0
            self.loss_sum.zero_()
        if args.inference == "sampled":
            counts = self.evaluate("test", self.nodes["test"])
            if counts is None:
                return False
            ranks.say(f"test accuracy {accuracy(counts)}, neighbours sampled")
        return True

    def some(self, nodes: Tensor) -> Tensor:
        """A sample of ``--eval_nodes`` nodes, equal at every call; all of them without it."""
        if self.args.eval_nodes is None or self.args.eval_nodes >= len(nodes):
            return nodes
        generator = torch.Generator().manual_seed(self.args.seed)
        return nodes[torch.randperm(len(nodes), generator=generator)[: self.args.eval_nodes]]

    def classify(self, store: gz.Store) -> Any:
        """Classifies every node by all of its neighbours, or a rank's own ones."""
        return gz.inference.layerwise(
            self.model,
            store,
            out=PREDICTION,
            head=lambda logits: logits.argmax(dim=-1).to(torch.int16),
            encoding="float16",
            num_workers=self.args.num_workers,
            device=self.args.device,
        )

    def infer(self) -> None:
        """Classifies every node by all of its neighbours; the store keeps that as an attribute.

        One process does, which has the machine's memory and the store for itself. Killed, it goes
        on when the script is started again.
        """
        self.interrupt.release()
        del self.loader, self.data
        self.store.close()
        with gz.open(self.args.store, "r+", memory=self.args.memory) as store:
            forget(store, None)
            print(self.classify(store))
            for split in ("val", "test"):
                nodes = self.nodes[split]
                found, labels = (
                    store.feature_store.get_tensor(group_name=None, attr_name=attr, index=nodes)
                    for attr in (PREDICTION, "y")
                )
                counts = int((found == labels.view(-1)).sum()), len(nodes)
                print(f"{split} accuracy {accuracy(counts)}, all neighbours", flush=True)

    def infer_in_shards(self, store: gz.ShardedStore) -> None:
        """Classifies every node by all of its neighbours: each rank its own, kept in its part."""
        self.interrupt.release()
        own_type = "own:node"
        with gz.open(store.part, "r+") as part:
            forget(part, own_type)
        self.classify(store)
        own = torch.as_tensor(store.nodes())
        with gz.open(store.part) as part:
            predictions = part.data()[own_type][PREDICTION]
        for split in ("val", "test"):
            there = torch.isin(own, self.nodes[split])
            labels = store.feature_store.get_tensor(
                group_name=None, attr_name="y", index=own[there]
            )
            right = int((predictions[there] == labels.view(-1)).sum())
            correct, total = map(int, self.ranks.sum(right, int(there.sum())))
            self.ranks.say(f"{split} accuracy {accuracy((correct, total))}, all neighbours")

    def say_memory(self) -> None:
        """Compares what each machine's processes took with what they were given."""
        self.peak.look()
        memory_plan = self.store.memory_plan
        given = 0 if memory_plan is None else memory_plan.memory
        found = self.ranks.gather((self.ranks.machine, self.peak.anon, self.peak.file, given))
        for machine in sorted({each[0] for each in found}):
            _, anon, file, given = zip(*(f for f in found if f[0] == machine), strict=True)
            # Pages of files are the same ones in all processes, for the most part.
            taken, budget = sum(anon) + max(file), sum(given)
            verdict = "was kept" if taken <= budget else "is for loaders: training came on top"
            name = f"machine {machine}: " if len({each[0] for each in found}) > 1 else ""
            print(
                f"memory: {name}{taken / 1e9:.2f} GB at most, {sum(anon) / 1e9:.2f} of its own "
                f"(RssAnon) and {max(file) / 1e9:.2f} of files (RssFile), in {len(anon)} "
                "process(es)"
                + (f"; the budget of {budget / 1e9:.2f} GB {verdict}" if budget else ""),
                flush=True,
            )


def forget(store: gz.Store, node_type: str | None) -> None:
    """Removes the predictions of an earlier run."""
    attrs = [attr.attr_name for attr in store.feature_store.get_all_tensor_attrs()]
    if PREDICTION in attrs:
        store.feature_store.remove_tensor(group_name=node_type, attr_name=PREDICTION, index=None)


def accuracy(counts: tuple[int, int]) -> str:
    """The accuracy as text, with the number of nodes."""
    correct, total = counts
    return f"{correct / max(1, total):.4f} of {total:,}"


# Command line -----------------------------------------------------------------------------------


def fan_out(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="GraphSAGE on ogbn-papers100M, from disk. Data-parallel under torchrun."
    )
    add = parser.add_argument
    add("store", type=Path, metavar="STORE", help="what graphzero convert has written, or will")
    # These options are PyG's example's, with its defaults.
    add("--dataset_dir", type=Path, default=Path("data"), help="has the dataset, to be converted")
    add("--dataset_subdir", default="ogb-papers100M", help="of --dataset_dir, as ogb makes it")
    add("--use_gat", action="store_true", help="GAT instead of GraphSAGE")
    add("--verbose", action="store_true", help="how long validation and test took, too")
    add("--device", type=torch.device, help="default: a GPU for each process, if there are some")
    add("-e", "--epochs", type=int, default=10)
    add("--num_layers", type=int, default=3)
    add("--num_heads", type=int, default=2, help="of GAT")
    add("-b", "--batch_size", type=int, default=1024, help="seeds of a batch, of each process")
    add("--num_workers", type=int, default=2, help="threads that make batches, of each process")
    add(
        "--fan_out",
        type=fan_out,
        default=[10],
        metavar="N[,N...]",
        help="neighbours in each layer; one number for all of them, or one for each",
    )
    add("--hidden_channels", type=int, default=256)
    add("--lr", type=float, default=0.003)
    add("--wd", type=float, default=0.0, help="weight decay")
    add("--dropout", type=float, default=0.5)
    add("--use_directed_graph", action="store_true", help="convert citations in one direction")
    # These options replace some of PyG's example, or are new.
    add("--features", choices=ENCODINGS, help="how features are stored (new stores: float32)")
    add("--memory", help='for all processes of a machine, such as "10GB"; default: what is free')
    add("--checkpoint", type=Path, metavar="FILE", help="written as training goes; resumed from")
    add("--checkpoint_every", type=int, default=200, metavar="BATCHES")
    add("--eval_every", type=int, default=1, metavar="EPOCHS")
    add("--eval_nodes", type=int, metavar="N", help="look at so many after an epoch; default: all")
    add(
        "--inference",
        choices=("sampled", "layerwise"),
        default="sampled",
        help="test by sampled neighbours, or by all of them: classifies every node, and takes disk "
        "for two layers' activations, 4 bytes each",
    )
    add("--loss_log", type=Path, metavar="FILE", help="the loss of every batch as a line of JSON")
    add("--seed", type=int, default=0)
    words = sys.argv[1:] if argv is None else argv
    # Dashes will do, too.
    args = parser.parse_args(
        ["--" + w[2:].replace("-", "_") if w[:2] == "--" else w for w in words]
    )
    args.fan_out *= args.num_layers if len(args.fan_out) == 1 else 1
    if len(args.fan_out) != args.num_layers:
        parser.error(
            f"--fan_out: found {len(args.fan_out)} numbers, expected one, or one for each of "
            f"--num_layers {args.num_layers}"
        )
    if args.device is None:
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        args.device = torch.device("cuda", local_rank) if torch.cuda.is_available() else "cpu"
        args.device = torch.device(args.device)
    for name in ("epochs", "num_layers", "batch_size", "checkpoint_every", "eval_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name}: found {getattr(args, name)}, expected > 0")
    for file in (args.checkpoint, args.loss_log):
        if file is not None and not file.parent.is_dir():
            parser.error(f"{file}: found no directory {file.parent}; make it first")
    return args


def main(argv: list[str] | None = None) -> Training:
    training = Training(parse_args(argv))
    finished = training.run()
    training.say_memory()
    store, by_all = training.store, training.args.inference == "layerwise"
    if isinstance(store, gz.ShardedStore):
        if finished and by_all:
            training.infer_in_shards(store)
        store.close()  # waits for the others
    training.parallel = training.model  # lets go of the group, see leave()
    training.ranks.leave()
    if not finished:
        sys.exit(128 + (training.interrupt.signal or signal.SIGTERM))  # or another rank's
    if by_all and training.ranks.rank == 0 and not isinstance(store, gz.ShardedStore):
        training.infer()
    return training


if __name__ == "__main__":
    main()
