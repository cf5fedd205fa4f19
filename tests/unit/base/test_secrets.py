"""What looks like a secret is masked, and nothing else is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stash.base import secrets
from stash.base.secrets import is_secret, masked, masked_text

HIDDEN = "s3cr3tValue"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("train.py", "--api-key", HIDDEN, "--lr", "0.1"), ("train.py", "--api-key", "***", "--lr", "0.1")),
        (("train.py", f"--token={HIDDEN}"), ("train.py", "--token=***")),
        (("train.py", "--wandb_api_key", HIDDEN), ("train.py", "--wandb_api_key", "***")),
        (("train.py", "--password", "-Ab1-!x"[1:]), ("train.py", "--password", "***")),
        (("train.py", f"wandb.api_key={HIDDEN}"), ("train.py", "wandb.api_key=***")),
        (("env", f"HF_TOKEN={HIDDEN}", "python", "train.py"), ("env", "HF_TOKEN=***", "python", "train.py")),
        (("train.py", "--apiKey", HIDDEN), ("train.py", "--apiKey", "***")),
        (("bash", "-c", f"train.py --secret {HIDDEN} -v"), ("bash", "-c", "train.py --secret *** -v")),
        (("train.py", f"https://me:{HIDDEN}@host/x"), ("train.py", "https://***@host/x")),
        (("train.py", "--data", f"s3://key:{HIDDEN}@bucket/x"), ("train.py", "--data", "s3://***@bucket/x")),
        (("train.py", "hf_abcdefghijklmnop"), ("train.py", "***")),
    ],
)
def test_secrets_of_a_command_are_masked(words: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert masked(words) == kept


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--key-dim", "64", "--max-tokens", "512", "--tokenizer", "bert"),
        ("train.py", "--token-dropout=0.1", "--keypoints", "17", "--passes", "3"),
        ("train.py", "--password-file", "/run/secret", "--verbose"),
        ("train.py", "--token", "--verbose"),
        ("train.py", "--data", "https://host/data?split=train", "user@host:/data"),
        ("torchrun", "--rdzv-id=7", "--rdzv-endpoint", "10.0.0.1:29500", "train.py", "--lr=1e-3"),
    ],
)
def test_other_words_stay(words: tuple[str, ...]) -> None:
    assert masked(words) == words


@pytest.mark.parametrize(
    "text",
    [
        f"requests.exceptions.HTTPError: 401 for url: https://api.example/x?token={HIDDEN}&page=2",
        f"ValueError: bad config {{'api_key': '{HIDDEN}', 'lr': 0.1}}",
        f'{{"password": "{HIDDEN} with spaces"}}',
        f"Authorization: Bearer {HIDDEN}",
        f"AWS_SECRET_ACCESS_KEY={HIDDEN}",
        f"git clone https://{HIDDEN}@github.com/me/it",
        f"--password '{HIDDEN} and more'",
    ],
)
def test_secrets_in_sentences_are_masked(text: str) -> None:
    assert HIDDEN not in masked_text(text)
    assert masked_text(masked_text(text)) == masked_text(text)


def test_a_sentence_without_secrets_stays() -> None:
    for text in (
        "KeyError: 'learning_rate'",
        "the rung network was not measured: one node",
        "RuntimeError: expected key: int, got str (keys are integers)",
        'File "/home/me/train.py", line 3, in <module>',
        "tcp://10.0.0.1:29500",
    ):
        assert masked_text(text) == text


def test_names() -> None:
    assert is_secret("GITHUB_PAT")
    assert is_secret("clientSecret")
    assert is_secret("--hf.token")
    assert not is_secret("--")
    assert not is_secret("monkey")
    assert not is_secret("AWS_ACCESS_KEY_ID")


def test_time_is_linear_in_the_text() -> None:
    def seconds(size: int) -> float:
        texts = ("a" * size, "--key " * (size // 6), "x://" + "a:" * (size // 2), "token=" * (size // 6), "-" * size)
        began = time.process_time()
        for text in texts:
            masked_text(text)
        return time.process_time() - began

    seconds(1000)
    assert seconds(200_000) < 40 * seconds(20_000) + 0.05


def test_the_words_that_make_a_name_secret_are_documented():
    page = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
    section = page.partition("## Who may read it")[2].partition("\n## ")[0]
    assert [word for word in (*secrets._ANYWHERE, *secrets._AT_THE_END) if f"`{word}`" not in section] == []
