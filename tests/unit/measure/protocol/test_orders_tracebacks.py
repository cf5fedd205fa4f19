"""Which frames of a traceback are Stash's, and go."""

from stash.measure.protocol.orders import strip_wraps

SEEN = """Traceback (most recent call last):
  File "/home/me/train.py", line 45, in <module>
    for batch in loader:
  File "/opt/lib/stash/measure/agent/data/feeds.py", line 50, in __next__
    return next(self._iterator)
           ^^^^^^^^^^^^^^^^^^^^
  File "/opt/lib/torch/_utils.py", line 7, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/lib/torch/utils/data/_utils/worker.py", line 9, in _worker_loop
    data = fetcher.fetch(index)
  File "/opt/lib/stash/measure/agent/wraps/loader.py", line 5, in fetch
    return fetch(self, index)
  File "/home/me/train.py", line 20, in __getitem__
    raise ValueError("no such sample")
ValueError: no such sample
"""


def test_a_traceback_is_that_of_the_script_and_its_libraries():
    left = strip_wraps(SEEN)
    assert "stash" not in left
    assert [line for line in SEEN.splitlines() if line in left.splitlines()] == left.splitlines()
    assert left.count("  File") == 4


def test_a_frame_of_stashs_own_that_failed_itself_stays():
    own = SEEN.replace(
        '  File "/home/me/train.py", line 20, in __getitem__\n    raise ValueError("no such sample")\n',
        "",
    )
    assert "wraps/loader.py" in strip_wraps(own)


def test_an_interrupt_strikes_anywhere_and_is_no_failure_of_stashs():
    own = '  File "/opt/lib/stash/measure/protocol/journal.py", line 5, in beat\n    write()\n    ~~~~~^^\n'
    start = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 45, in <module>\n    update()\n'
    assert strip_wraps(start + own + own + "KeyboardInterrupt\n") == start + "KeyboardInterrupt\n"
    assert strip_wraps(start + own + own + "OSError: no\n") == start + own + "OSError: no\n"
