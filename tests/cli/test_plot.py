"""``madbench plot``: the figures that stored results allow, their files, and refused options."""

from __future__ import annotations

import pytest

from madbench.analysis.figures import files
from madbench.analysis.figures.accuracy import DIFFICULTY_COLUMNS
from madbench.analysis.figures.files import read_frame
from madbench.cli.plot import FigurePlace, plot

TWO_TASKS = ("compression", "in_context_recall")


@pytest.fixture(scope="session")
def tiny(tiny_of_both) -> str:
    return tiny_of_both


@pytest.fixture
def drawn_figures(invoke, tiny, monkeypatch, tmp_path):
    """``drawn_figures(*words)``: the stems of the figures that the verb draws, by name; no picture is written."""

    def call(*words):
        found, call.figures = {}, []

        def remember(figure, stem):
            call.figures.append(figure)
            found[str(figure.get_label())] = stem
            return []

        monkeypatch.setattr(files, "save_figure", remember)
        output = invoke(plot, *words, *([] if {"-p", "-t"} & {*words} else ["-p", tiny]))
        assert not output.exception, output.exception
        call.stdout, call.stderr = output.stdout, output.stderr
        return found

    return call


@pytest.mark.slow
def test_every_figure_with_data_is_drawn_and_others_have_a_reason(fill, drawn_figures):
    for label, accuracy in (("S", 0.1), ("S-c", 0.5)):
        fill(label, accuracy, (0, 1))
    found = drawn_figures()
    assert list(found) == ["scores", "learning", "effects", "budget"]
    assert {str(stem) for stem in found.values()} == {f"results/plots/{name}" for name in found}
    assert drawn_figures.stdout.split() == [f"results/plots/{name}.csv" for name in found]
    (difficulty,) = drawn_figures.stderr.splitlines()
    assert difficulty.startswith("left out: difficulty: every task is stored with only one setting; --profile full")


@pytest.mark.slow
def test_plot_prints_its_files_and_writes_equal_ones_in_a_second_call(fill, invoke, tiny, tmp_path):
    fill("S", 0.1)
    words = ("scores", "S", "-t", "compression", "-p", tiny, "--output", "slides")
    first = invoke(plot, *words).stdout.split()
    assert first == ["slides/scores.csv", "slides/scores.png", "slides/scores.pdf"]
    contents = [(tmp_path / name).read_bytes() for name in first]
    invoke(plot, *words)
    assert [(tmp_path / name).read_bytes() for name in first] == contents
    frame = read_frame(
        tmp_path / "slides" / "scores.csv", {"mark": str, "accuracy": float, "protocol": str}, "accuracies"
    )
    assert frame[frame.mark == "mean"].accuracy.tolist() == [10.0]
    protocol = frame.protocol[0]
    assert all(part in protocol for part in ("Fidelity corrected", "budget strict", "Trained on an abacus"))


@pytest.mark.slow
def test_a_single_column_has_pages_and_their_caption_beside_them(fill, invoke, tiny, tmp_path):
    for i, label in enumerate([f"{base}{rest}" for base in "SRG" for rest in ("", "-c", "-p", "-pc", "-c-q")]):
        fill(label, i / 20)
    words = ("scores", "-t", "compression", "-p", tiny, "--width", "single")
    files = ["scores.csv", "scores.png", "scores.pdf", "scores-2.png", "scores-2.pdf", "scores.txt"]
    assert invoke(plot, *words).stdout.split() == [f"results/plots/{name}" for name in files]
    caption = (tmp_path / "results" / "plots" / "scores.txt").read_text()
    assert caption.startswith("Results by task and label\n") and "Fidelity corrected" in caption
    bare = invoke(plot, *words, "--no-title", "--no-caption", "-o", "bare").stdout.split()
    assert bare == [f"bare/{name}" for name in files[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["pdf", "png"])
def test_one_figure_is_written_to_the_file_that_output_names(fill, invoke, tiny, tmp_path, ending):
    fill("S", 0.1)
    file = f"mine/scores.v2.{ending}"
    assert invoke(plot, "scores", "S", "-t", "compression", "-p", tiny, "-o", file).stdout.split() == [file]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [f"scores.v2.{ending}"]
    beginning = {"pdf": b"%PDF", "png": b"\x89PNG"}[ending]
    assert (tmp_path / file).read_bytes().startswith(beginning)
    source = invoke(plot, "scores", "S", "-t", "compression", "-p", tiny).stdout.split()[0]
    assert invoke(plot, "scores", "--from", source, "-o", f"again.{ending}").stdout.split() == [f"again.{ending}"]
    assert (tmp_path / f"again.{ending}").read_bytes() == (tmp_path / file).read_bytes()
    link = tmp_path / f"link.{ending}"
    link.symlink_to("real")
    invoke(plot, "scores", "--from", source, "-o", link)
    assert link.is_symlink() and (tmp_path / "real").read_bytes() == (tmp_path / file).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-o", "fig.pdf"],
            "--output fig.pdf: one file, but every figure would be drawn; name one figure, or a folder",
        ),
        (["scores", "budget", "-o", "fig.png"], "--output fig.png: one file, but scores and budget would be drawn"),
        (["scores", "-o", "fig.svg"], "no figure is written as .svg; name a .pdf or a .png file, or a folder"),
        (["scores", "-o", "fig.xyz"], "as .xyz; name a .pdf or a .png file, or a folder without ."),
        (["scores", "-o", "fig.PDF"], "no figure is written as .PDF; name a .pdf or a .png file, or a folder"),
    ],
)
def test_plot_refuses_a_file_for_several_figures_and_of_another_format(refuse, tmp_path, words, message):
    assert message in refuse(plot, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_called_like_a_picture(tmp_path):
    assert FigurePlace.from_option(tmp_path / "fig.pdf", tmp_path) == FigurePlace(tmp_path / "fig.pdf", "pdf")
    (tmp_path / "fig.pdf").mkdir()
    assert FigurePlace.from_option(tmp_path / "fig.pdf", tmp_path) == FigurePlace(tmp_path / "fig.pdf")
    assert FigurePlace.from_option(None, tmp_path) == FigurePlace(tmp_path / "plots")


@pytest.mark.parametrize("words", [("inspect", "S"), ("paper", "hypermlp", "table1")])
def test_a_command_of_several_figures_refuses_a_file(main, words):
    ended = main(*words, "-o", "fig.pdf")
    assert ended.code == 2
    assert ended.stderr == "--output fig.pdf: one file, but there may be several figures; name a folder\n"


@pytest.mark.slow
def test_plot_refuses_a_named_figure_without_data(fill, refuse, tiny):
    fill("S", 0.1)
    asked = ("-p", tiny)
    assert "results: effects: no two labels" in refuse(plot, "effects", *asked)
    assert "results: difficulty: every task is stored with only one setting" in refuse(plot, "difficulty", *asked)
    assert "no runs of language models yet; madbench run G-cg-q-12o -t language_model makes some" in refuse(
        plot, "loss"
    )
    assert "none of its 2 runs belongs to profile full" in refuse(plot, "scores", "-p", "full")


@pytest.mark.slow
def test_task_settings_of_a_sweep_appear_in_the_difficulty_figure(fill, drawn_figures, tmp_path):
    for label in ("S", "R"):
        fill(label, 0.5)
        fill(label, 0.3, setting={"seq_len": 32})
    fill("S", 0.9, setting={"seq_len": 64}, fidelity="published")
    fill("S-p", 0.9, setting={"seq_len": 64})
    assert list(drawn_figures("difficulty")) == ["difficulty"]
    frame = read_frame(tmp_path / "results" / "plots" / "difficulty.csv", DIFFICULTY_COLUMNS, "difficulties")
    assert set(zip(frame.task, frame.variable)) == {(task, "seq_len") for task in TWO_TASKS}
    of_task = frame[frame.task == "compression"]
    assert list(zip(of_task.value, of_task.label, of_task.accuracy)) == [
        (16, "S", 50.0), (32, "S", 30.0), (16, "R", 50.0), (32, "R", 30.0),
    ]  # fmt: skip


@pytest.mark.slow
def test_options_of_plot_reach_their_figure(fill, drawn_figures):
    fill("S", 0.5)
    drawn_figures("learning", "budget", "--y", "loss", "--cost", "mixer_parameters")
    learning, budget = drawn_figures.figures
    assert "loss" in learning.axes[0].get_ylabel() and budget.axes[0].get_xlabel() == "mixer parameters"
    drawn_figures("learning", "budget", "--width", "single", "--no-title", "--no-caption")
    accuracy, single = drawn_figures.figures
    assert "accuracy" in accuracy.axes[0].get_ylabel() and "softmax attention = 1" in single.axes[0].get_xlabel()
    assert single.get_figwidth() == 3.3 < budget.get_figwidth()
    assert budget.get_suptitle() and budget.get_supxlabel() and not single.get_suptitle() + single.get_supxlabel()


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["efects"],
            "a figure (scores, learning, difficulty, loss, effects, budget) nor a label; did you mean 'effects'?",
        ),
        (["S-x"], "label 'S-x'"),
        (["scores", "--y", "loss"], "--y loss has no effect on scores; it is for learning"),
        (
            ["scores", "--cost", "mixer_parameters"],
            "--cost mixer_parameters has no effect on scores; it is for budget",
        ),
        (["scores", "--protocol", "ab"], "no run follows protocol ab; it has:"),
        (["learning", "-t", "language_model"], "--tasks language_model has no effect on learning, of MAD tasks"),
        (["loss", "-t", "compression"], "--tasks compression has no effect on loss, of Language model"),
        (["loss", "training.epochs=2"], "unknown key 'epochs'"),
        (["loss", "-p", "full"], "profile 'full': no such profile of the suite language"),
        (["-t", "compresion"], "unknown task 'compresion'; did you mean 'compression'?"),
    ],
)
def test_plot_refuses_options_without_effect(fill, fill_language, refuse, words, message):
    fill("S", 0.5)
    fill_language("S")
    assert message in refuse(plot, *words)


@pytest.mark.slow
def test_a_language_run_without_evaluation_leaves_other_figures_drawn(fill, fill_language, drawn_figures):
    fill("S", 0.5)
    fill_language("S", [], status="diverged")
    assert list(drawn_figures()) == ["scores", "learning", "budget"]
    assert "left out: loss: no run was evaluated even once" in drawn_figures.stderr


@pytest.mark.slow
def test_language_models_alone_can_be_plotted(fill_language, drawn_figures):
    for label in ("S", "S-c"):
        fill_language(label)
    assert list(drawn_figures("-t", "language_model")) == ["scores", "loss", "effects", "budget"]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_named(fill, refuse, tiny, tmp_path):
    fill("S", 0.5)
    (tmp_path / "taken").write_text("")
    problem = "a file is where a folder should be; choose another folder"
    assert refuse(plot, "scores", "-p", tiny, "-o", "taken").startswith(f"taken: {problem}")
