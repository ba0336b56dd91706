"""Times the pairwise encoder of the worker beside that of torchsparsegradutils, in alternating rounds on one thread.

    python encoder.py WORKER [--radius 2] [--volume 4 64 64 64] [--rounds 5]

The worker's operation is `pairwise_encode`: values s1 of shape (steps, *volume) to the stored values in CSR order; the
upstream gradient is s2. Needs torch, numpy and torchsparsegradutils.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import time

for name in ("OMP", "MKL", "OPENBLAS", "RAYON"):
    os.environ[f"{name}_NUM_THREADS"] = "1"

import numpy as np
import torch
from torchsparsegradutils.encoders import PairwiseEncoder


def mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def stream(number, count, seed=1):
    """The first numbers of a stream of the worker's protocol, in [-1, 1)."""
    start = mix(np.array([seed * 256 + number], np.uint64))
    counter = np.arange(1, count + 1, dtype=np.uint64)
    return (mix(start + counter * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) * 2.0**-52 - 1


def status_mb(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith(key))


class Peer:
    def __init__(self, radius, volume, layout):
        self.encoder = PairwiseEncoder(radius, tuple(volume), layout=layout, indices_dtype=torch.int64)
        shape = (len(self.encoder.offsets), *volume)
        self.values = torch.tensor(stream(1, int(np.prod(shape))).reshape(shape), dtype=torch.float32)
        self.upstream = None

    def forward(self):
        """The stored values and, where torch has a derivative of the matrix, the matrix."""
        if self.encoder.layout == torch.sparse_coo:
            matrix = self.encoder(self.values)
            return matrix.detach()._values(), matrix
        # Torch 2.15 goes through a dense matrix in the backward pass of CSR: of this layout the values' own path is timed.
        encoder = self.encoder
        stored = encoder._calc_values(self.values).index_select(-1, encoder.csr_permutation)
        torch.sparse_csr_tensor(encoder.crow_indices, encoder.col_indices, stored.detach(), [encoder.volume_numel] * 2)
        return stored, None

    def step(self, backward):
        if not backward:
            with torch.no_grad():
                return self.forward()[0], None
        self.values.requires_grad_(True)
        self.values.grad = None
        stored, matrix = self.forward()
        if self.upstream is None:
            self.upstream = torch.tensor(stream(2, stored.numel()), dtype=torch.float32)
        if matrix is None:
            stored.backward(self.upstream)
        else:
            indices = matrix.detach()._indices()
            matrix.backward(torch.sparse_coo_tensor(indices, self.upstream, matrix.shape, is_coalesced=True))
        return stored.detach(), self.values.grad

    def cpu_ms(self, backward):
        start = time.process_time()
        self.step(backward)
        return (time.process_time() - start) * 1e3

    def peak_mb(self, backward):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
        before = status_mb("VmRSS")
        self.step(backward)
        return status_mb("VmHWM") - before


class Worker:
    def __init__(self, path, **problem):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask(cmd="prepare", op="pairwise_encode", matrix=None, dtype="f32", threads=1, seed=1, **problem)

    def ask(self, **request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        reply = json.loads(self.process.stdout.readline())
        if not reply.pop("ok"):
            raise SystemExit(f"worker: {reply['error']}")
        return reply


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker")
    parser.add_argument("--radius", type=float, default=2.0)
    parser.add_argument("--volume", type=int, nargs=4, default=[4, 64, 64, 64])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    params = {"radius": args.radius, "volume": args.volume}
    peers = {"coo": Peer(args.radius, args.volume, torch.sparse_coo), "csr": Peer(args.radius, args.volume, torch.sparse_csr)}
    for backward in (False, True):
        name = "fwdbwd" if backward else "fwd"
        worker = Worker(args.worker, **{"pass": name}, params=params)
        sums = worker.ask(cmd="check")["sums"]
        for key, theirs in zip(("out", "grad_values"), peers["csr"].step(backward)):
            if theirs is not None:
                ours = sums[key]
                theirs = theirs.numpy().astype(np.float64).ravel()
                expected = [theirs.sum(), np.abs(theirs).sum(), theirs @ stream(9, theirs.size)]
                assert np.allclose(ours, expected, rtol=1e-9, atol=1e-6 * expected[1]), (key, ours, expected)
        times = {"worker": [], "coo": [], "csr": []}
        for _ in range(args.rounds):
            times["worker"].append(worker.ask(cmd="run")["cpu_ms"])
            for key, peer in peers.items():
                times[key].append(peer.cpu_ms(backward))
        peaks = {"worker": worker.ask(cmd="peak")["extra_mb"], **{key: peer.peak_mb(backward) for key, peer in peers.items()}}
        worker.ask(cmd="quit")
        ours = statistics.median(times["worker"])
        for key, each in times.items():
            middle = statistics.median(each)
            print(f"| {name} | {key} | {min(each):.4g} / {middle:.4g} ms | {peaks[key]:.0f} MB | x{middle / ours:.2f} |")


if __name__ == "__main__":
    main()
