"""Names are text in figures: dollars are no formulas, and a character that no font has is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib
import pytest
from matplotlib.font_manager import get_font
from matplotlib.text import Text

from madbench.analysis.figures import accuracy, fonts, style
from madbench.analysis.figures.files import save_figure, svg
from madbench.analysis.figures.panels import Layout, Panels
from madbench.errors import ConfigError
from madbench.labels.names import DisplayNames, using_names

SHIPPED = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def figure_with_name(name, scores):
    with using_names(DisplayNames(by_user={"S": name})):
        return accuracy.score_figure(accuracy.score_frame(scores({("S", "compression"): [40.0, 41.0]}), "", {}))


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [r"$\foo$", "$x_1$", "50 $ and 60 $", r"a\b^2_c", "{x}", "<b>&amp;"])
def test_a_name_is_text_in_every_figure_format(name, scores, tmp_path, monkeypatch):
    parsed = []
    monkeypatch.setattr("matplotlib.mathtext.MathTextParser.parse", lambda *arguments, **_: parsed.append(arguments))
    figure = figure_with_name(name, scores)
    save_figure(figure, tmp_path / "scores")
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f">{escaped}</text>" in svg(figure, "scores")
    assert name in texts(figure) and not parsed


def test_powers_on_a_logarithmic_axis_are_text(laid_out):
    with style.style():
        panels = Panels(Layout(), "powers", "Powers", [1], (2.0, 2.0))
        (axes,) = panels.axes
        axes.plot([1, 1000], [0.01, 100.0])
        axes.set(xscale="log", yscale="log")
        figure = panels.finish([], {})
        figure.canvas.draw()
    using_names = [text.get_text() for text in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert {"10⁰", "10³", "10⁻²"} <= set(using_names) and not any("$" in text for text in using_names)


@pytest.mark.slow
def test_a_character_without_a_font_is_an_error_with_advice(scores, tmp_path, monkeypatch):
    monkeypatch.setattr(fonts, "fonts_with", lambda code: [])
    with pytest.raises(ConfigError, match=r"DejaVu Sans, has no character 模 \(U\+6A21\).*MADBENCH_FONT.*file"):
        save_figure(figure_with_name("模型", scores), tmp_path / "scores")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["name", "file"])
def test_the_error_names_a_font_with_the_character_which_then_draws_it(how, scores, tmp_path, monkeypatch):
    stix, usual = (get_font(SHIPPED / f"{name}.ttf").get_charmap() for name in ("STIXGeneral", "DejaVuSans"))
    character = chr(min(code for code in stix.keys() - usual.keys() if code > 0x1D400))
    with pytest.raises(ConfigError, match=r"set the environment variable MADBENCH_FONT .*'(STIX|DejaVu Math)"):
        figure_with_name(character, scores)
    shutil.copy(SHIPPED / "STIXGeneral.ttf", tmp_path / "own.ttf")
    monkeypatch.setenv(fonts.VARIABLE, "STIXGeneral" if how == "name" else str(tmp_path / "own.ttf"))
    assert (tmp_path / "scores.png") in save_figure(figure_with_name(f"{character} and ⚀", scores), tmp_path / "scores")


@pytest.mark.slow
def test_an_svg_for_a_page_needs_no_local_font_for_its_text(scores):
    with fonts.font_of_reader():
        assert ">模型</text>" in svg(figure_with_name("模型", scores), "scores")


@pytest.mark.parametrize("chosen", ["No Such Font", "/no/such/font.ttf", __file__.replace(".py", ".otf")])
def test_a_font_that_is_not_there_is_an_error(chosen, monkeypatch):
    monkeypatch.setenv(fonts.VARIABLE, chosen)
    with pytest.raises(ConfigError, match="MADBENCH_FONT="), style.style():
        pass
