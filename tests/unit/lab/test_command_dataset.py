"""``stash lab dataset make``: a count, and what was made."""

from typer.testing import CliRunner

from stash.core.errors import UserError


def test_the_dataset_command_makes_a_data_set(tmp_path):
    from stash.lab.command import dataset_app

    run = CliRunner().invoke(dataset_app, ["make", "text", str(tmp_path / "new"), "--count", "10"])
    assert run.exit_code == 0, run.output
    assert "10 samples of text, 20.5 kB, made in" in run.stdout
    assert (tmp_path / "new" / "tokens-00000.uint16.bin").stat().st_size == 20_480


def test_a_wrong_kind_is_one_sentence_and_no_empty_line(tmp_path):
    from stash.lab.command import dataset_app

    run = CliRunner().invoke(dataset_app, ["make", "image", str(tmp_path / "new")])
    assert isinstance(run.exception, UserError)
    assert run.output == ""
