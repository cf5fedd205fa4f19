"""An IterableDataset pages through a database with LIMIT/OFFSET in an order without index: each page sorts the whole table again.

Seen in: hammerlab/cycledash#635, JackBister/logsuck#9 ("slower and slower ... OFFSET gets more expensive": 600 ms to 3 ms),
MemPalace/mempalace#1841 (each page re-scans the collection), litedb-org/LiteDB#2092; data sets over sqlite are written this way.
Symptom: the epoch begins quickly and slows down batch by batch; CPU of one core, no disk activity.
Cause: ORDER BY sort_key without an index, LIMIT 64 OFFSET k: the whole table is scanned, k + 64 rows are sorted, k thrown away.
Truth: reading input (FETCH/PREP in the loader): from some 15 ms to 100 ms and more a page, most of the wall.
Remedy: index on (split, sort_key) and "sort_key > last" in place of OFFSET (FIXED=1).
Run: python 52_pages_by_offset.py
"""
import os, random, sqlite3, tempfile, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

STEPS, FIXED = int(os.environ.get("STEPS", 350)), bool(os.environ.get("FIXED"))
ROWS, DIM, PAGE = 40_000, 64, 64

BY_OFFSET = "SELECT sort_key, features, label FROM samples WHERE split = 'train' ORDER BY sort_key LIMIT ? OFFSET ?"
BY_KEY = "SELECT sort_key, features, label FROM samples WHERE split = 'train' AND sort_key > ? ORDER BY sort_key LIMIT ?"


def build_database(path):
    rng = random.Random(0)
    features = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, split TEXT, sort_key REAL, label INTEGER, features BLOB)")
    rows = (("train" if i % 20 else "test", rng.random(), i % 10, features[i].tobytes()) for i in range(ROWS))
    db.executemany("INSERT INTO samples (split, sort_key, label, features) VALUES (?, ?, ?, ?)", rows)
    if FIXED:
        db.execute("CREATE INDEX by_key ON samples (split, sort_key)")
    db.commit()
    db.close()


class DatabaseSamples(IterableDataset):
    def __init__(self, path, page=PAGE):
        self.path, self.page = path, page

    def pages(self):
        db = sqlite3.connect(self.path)
        offset, last = 0, -1.0
        while True:
            if FIXED:
                rows = db.execute(BY_KEY, (last, self.page)).fetchall()
            else:
                rows = db.execute(BY_OFFSET, (self.page, offset)).fetchall()
            if not rows:
                break
            yield rows
            offset += len(rows)
            last = rows[-1][0]
        db.close()

    def __iter__(self):
        for rows in self.pages():
            for _, blob, label in rows:
                yield torch.from_numpy(np.frombuffer(blob, np.float32).copy()), label


def train(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(DIM, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                          nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = DataLoader(DatabaseSamples(path), batch_size=PAGE)
    step, start = 0, time.perf_counter()
    batches = iter(loader)
    while step < STEPS:
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            continue
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} after {time.perf_counter() - start:.1f} s", flush=True)
    return (time.perf_counter() - start) / STEPS


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "samples.db")
        build_database(path)
        seconds = train(path)
    print(f"steps {STEPS}, seconds a step {seconds:.4f}")
