"""What looks like a secret is masked, and nothing else is."""

import time
from pathlib import Path

import pytest

from stash.core import secrets
from stash.core.secrets import hide_masked, is_secret, kept_words, mask_text, mask_words

HIDDEN = "s3cr3tValue"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (
            ("train.py", "--api-key", HIDDEN, "--lr", "0.1"),
            ("train.py", "--api-key", "***", "--lr", "0.1"),
        ),
        (("train.py", f"--token={HIDDEN}"), ("train.py", "--token=***")),
        (("train.py", "--wandb_api_key", HIDDEN), ("train.py", "--wandb_api_key", "***")),
        (("train.py", "--password", "-Ab1-!x"[1:]), ("train.py", "--password", "***")),
        (("train.py", f"wandb.api_key={HIDDEN}"), ("train.py", "wandb.api_key=***")),
        (
            ("env", f"HF_TOKEN={HIDDEN}", "python", "train.py"),
            ("env", "HF_TOKEN=***", "python", "train.py"),
        ),
        (("train.py", "--apiKey", HIDDEN), ("train.py", "--apiKey", "***")),
        (
            ("bash", "-c", f"train.py --secret {HIDDEN} -v"),
            ("bash", "-c", "train.py --secret *** -v"),
        ),
        (("train.py", f"https://me:{HIDDEN}@host/x"), ("train.py", "https://***@host/x")),
        (
            ("train.py", "--data", f"s3://key:{HIDDEN}@bucket/x"),
            ("train.py", "--data", "s3://***@bucket/x"),
        ),
        (("train.py", "hf_abcdefghijklmnop"), ("train.py", "***")),
    ],
)
def test_secrets_of_a_command_are_masked(words, kept):
    assert mask_words(words) == kept


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
def test_other_words_stay(words):
    assert mask_words(words) == words


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
def test_secrets_in_sentences_are_masked(text):
    assert HIDDEN not in mask_text(text)
    assert mask_text(mask_text(text)) == mask_text(text)


def test_a_sentence_without_secrets_stays():
    for text in (
        "KeyError: 'learning_rate'",
        "the rung network was not measured: one node",
        "RuntimeError: expected key: int, got str (keys are integers)",
        'File "/home/me/train.py", line 3, in <module>',
        "tcp://10.0.0.1:29500",
    ):
        assert mask_text(text) == text


def test_names():
    assert is_secret("GITHUB_PAT")
    assert is_secret("clientSecret")
    assert is_secret("--hf.token")
    assert not is_secret("--")
    assert not is_secret("monkey")
    assert not is_secret("AWS_ACCESS_KEY_ID")


def test_time_is_linear_in_the_text():
    def seconds(size):
        texts = (
            "a" * size,
            "--key " * (size // 6),
            "x://" + "a:" * (size // 2),
            "token=" * (size // 6),
            "-" * size,
        )
        began = time.process_time()
        for text in texts:
            mask_text(text)
        return time.process_time() - began

    assert (
        min(seconds(200_000) for _ in range(3)) < 40 * min(seconds(20_000) for _ in range(3)) + 0.05
    )


def test_the_words_that_make_a_name_secret_are_documented():
    page = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
    section = page.partition("## Who may read it")[2].partition("\n## ")[0]
    assert [
        word for word in (*secrets._ANYWHERE, *secrets._AT_THE_END) if f"`{word}`" not in section
    ] == []


@pytest.mark.parametrize(
    "words",
    [
        ("--pw", HIDDEN),
        ("--access-token-value", HIDDEN),
        ("--otp", "123456"),
        ("--login", f"bob:{HIDDEN}"),
        (f"--passwd:{HIDDEN}",),
        ("-p", HIDDEN),
        (f"-p{HIDDEN}",),
        ("-phunter",),
        (HIDDEN,),
        (f"--x={HIDDEN}",),
        (f"user.pin={HIDDEN}",),
        ("--dsn", f"mysql://me:{HIDDEN}@host/x"),
        ("--header", f"X-Auth: {HIDDEN}"),
        ("--card", "4111111111111111"),
        ("--json", f'{{"a": "{HIDDEN}"}}'),
        ("--out", f"/srv/{HIDDEN}"),
        ("--uuid", "0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("--x", f"a\n{HIDDEN}"),
        ("-m", "secretmodule"),
    ],
)
def test_what_may_be_a_secret_is_not_kept(words, tmp_path):
    kept = kept_words(("train.py", *words), (), (tmp_path,))
    assert len(kept) == 1 + len(words)
    secret = words[-1].removeprefix("--passwd:").removeprefix("--x=").removeprefix("user.pin=")
    assert secret not in " ".join(kept)
    hide_masked(("train.py", *words), kept)
    for part in (
        HIDDEN,
        "4111111111111111",
        "secretmodule",
        "0f8fad5b-d9cb-469f-a165-70867728950e",
    ):
        if part in " ".join(words):
            assert part not in mask_text(
                f"ValueError: cannot log in with {part!r} at https://a.b/{part}."
            )


def test_what_says_what_was_measured_is_kept(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").touch()
    words = (
        "train.py",
        "--batch",
        "32",
        "--lr=1e-3",
        "--betas",
        "0.9,0.999",
        "--size",
        "224x224",
        "--amp",
        "--no-ema",
        "-j",
        "4",
        "--memory",
        "10GiB",
        "--dtype",
        "bf16",
        "--conf",
        "conf/a.yaml",
        str(tmp_path / "conf"),
        "--x=true",
        "model.depth=3",
        "+opt.lr=.1",
        "--arch",
        "resnet50",
        "-lr",
        "-1",
        "[32,64]",
        "--",
        "",
    )
    assert kept_words(words, ("resnet50", "-lr"), (tmp_path,)) == words


@pytest.mark.parametrize("outside", ["/etc/hostname", "../", "/", "conf/../../x", "link"])
def test_a_path_outside_of_the_project_is_not_kept(tmp_path, outside):
    project = tmp_path / "project"
    (project / "conf").mkdir(parents=True)
    (tmp_path / "x").touch()
    (project / "link").symlink_to("/etc/hostname")
    assert kept_words(("train.py", outside), (), (project,)) == ("train.py", "…")


def test_what_starts_a_job_is_kept_and_what_it_is_told_is_not():
    words = (
        "torchrun",
        "--nproc-per-node",
        "2",
        "--rdzv-id=job7",
        "-m",
        "pack.train",
        "-m",
        "hunter",
        "python",
    )
    assert kept_words(words) == (
        "torchrun",
        "--nproc-per-node",
        "2",
        "--rdzv-id=…",
        "-m",
        "pack.train",
        "-m",
        "…",
        "…",
    )
    assert kept_words(
        ("env", "CUDA_VISIBLE_DEVICES=0", "WHO=bob", "/usr/bin/python3", "-u", "train.py", "x")
    ) == (
        "env",
        "CUDA_VISIBLE_DEVICES=0",
        "WHO=…",
        "/usr/bin/python3",
        "-u",
        "train.py",
        "…",
    )


def test_a_plain_word_is_masked_alone_only_and_only_if_it_is_a_secrets_or_long():
    words = (
        "x.py",
        "--split",
        "memory",
        "--a",
        "b",
        "--pw",
        "train",
        "--user",
        "margaret-thatcher",
    )
    hide_masked(words, ("x.py", "--split", "…", "--a", "…", "--pw", "***", "--user", "…"))
    sentence = "train.py ran out of memory at b: no train, no margaret-thatcher."
    assert mask_text(sentence) == "train.py ran out of memory at b: no …, no …."
    hide_masked((), ())
    assert mask_text("no split train") == "no split train"
