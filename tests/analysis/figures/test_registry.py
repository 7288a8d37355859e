"""A figure can be drawn again from its CSV file, to the same bytes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import matplotlib
import pytest

from analysis.figures import synthetic
from drawings import FIGURES
from madbench.analysis.figures.files import read_frame, save_figure, svg, write_frame
from madbench.errors import ConfigError, StoreError
from madbench.suites.mad.suite import MAD_TASKS

pytestmark = pytest.mark.usefixtures("without_layout")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_drawn_from_its_csv_is_equal(name, tmp_path):
    frame = getattr(synthetic, name)(["S", "R-12o!"], MAD_TASKS[:1])
    write_frame(frame, tmp_path / "some.csv")
    again = FIGURES[name].read(tmp_path / "some.csv")
    assert again.equals(frame)
    assert svg(FIGURES[name].draw(again), name) == svg(FIGURES[name].draw(frame), name)


@pytest.mark.slow
def test_saved_figures_have_equal_bytes_whatever_the_users_matplotlib_style(tmp_path):
    frame = synthetic.budget(["S", "R-12o!", "G"], MAD_TASKS[:1])
    first = save_figure(FIGURES["budget"].draw(frame), tmp_path / "a" / "one")
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "savefig.dpi": 30}):
        second = save_figure(FIGURES["budget"].draw(frame), tmp_path / "two")
    assert [path.name for path in first] == ["one.png", "one.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    png, pdf = (path.read_bytes() for path in first)
    assert png.startswith(b"\x89PNG") and b"Software" not in png
    assert pdf.startswith(b"%PDF") and b"Date" not in pdf


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="taken: a file is where a folder should be"):
        save_figure(FIGURES["scores"].draw(synthetic.scores(["S"], MAD_TASKS[:1])), tmp_path / "taken" / "mad")


def test_reading_a_csv_with_other_columns_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("a,b\n1,x\n")
    assert read_frame(path, {"b": str, "a": int}, "numbers").to_dict("list") == {"b": ["x"], "a": [1]}
    with pytest.raises(ConfigError, match="one.csv: no numbers: without column 'c'"):
        read_frame(path, {"c": str}, "numbers")
    with pytest.raises(ConfigError, match="one.csv: no numbers"):
        read_frame(path, {"b": float}, "numbers")
    with pytest.raises(ConfigError, match="one.csv: no loss curves: without column 'protocol'"):
        FIGURES["loss"].read(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_an_svg_has_text_elements_a_title_and_prefixed_unique_ids(name):
    frame = getattr(synthetic, name)(["S", "R"], MAD_TASKS[:1]).assign(protocol="Profile <quick> & more.")
    figure = FIGURES[name].draw(frame)
    text = svg(figure, name)
    root = ET.fromstring(text)
    found = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert len(found) > 5
    title, notes = (next(root.iter("{http://www.w3.org/2000/svg}" + tag)) for tag in ("title", "desc"))
    assert title.text == figure.get_suptitle() and notes.text.startswith("Profile <quick> & more.")
    assert root.get("aria-labelledby").split() == [title.get("id"), notes.get("id")]
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) and all(one.startswith(f"{name}-") for one in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', text)) <= set(ids)
    assert "<style" not in text and "date" not in text.lower()
    assert text == svg(figure, name) and svg(figure, "two").count('id="two-') == len(ids)
