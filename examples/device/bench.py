"""In place of a bench tool on a device: reads FILE, BATCH, THREADS, SECONDS; prints the milliseconds of each run."""

import sys
import time

import numpy as np
import onnxruntime

for line in sys.stdin:
    file, batch, threads, seconds = line.split("\t")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    inputs = {entry.name: np.random.default_rng(0).random((int(batch), *entry.shape[1:]), np.float32)}
    for _ in range(3):
        session.run(None, inputs)
    times, end = [], time.perf_counter() + float(seconds)
    while len(times) < 10 or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(1e3 * (time.perf_counter() - start))
    print(*(f"{each:.6f}" for each in times), flush=True)
