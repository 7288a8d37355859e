from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from madbench.analysis.figures import style
from madbench.analysis.figures.files import svg
from madbench.analysis.figures.mad import mad_figure, mad_frame
from madbench.analysis.figures.marks import add_bands, add_lines, add_marks
from madbench.analysis.frames import read_frame, write_frame
from madbench.errors import ConfigError
from madbench.labels import expand


def test_all_33_labels_have_a_style_of_their_own():
    styles = list(style.label_styles(expand(["@table1"])).values())
    assert len({(one.color, one.dashes) for one in styles}) == len({(one.color, one.marker) for one in styles}) == 33
    for one, other in itertools.pairwise(styles):
        assert one.color != other.color and one.dashes != other.dashes and one.marker != other.marker


def luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_stands_out_from_white_paper():
    assert min(1.05 / (luminance(color) + 0.05) for color in style.COLORS) > 2


def test_an_svg_has_text_a_title_and_ids_of_its_own(cells):
    figure = mad_figure(mad_frame(cells({("S", "memorization"): [20.0, 30.0]}), "Profile <quick> & more."))
    text = svg(figure)
    root = ET.fromstring(text)
    found = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert {"memorization", "S", "accuracy, %"} <= set(found)
    title, notes = (next(root.iter("{http://www.w3.org/2000/svg}" + name)) for name in ("title", "desc"))
    assert title.text == "MAD: accuracy by task and label" and notes.text.startswith("Profile <quick> & more.")
    assert root.get("aria-labelledby").split() == [title.get("id"), notes.get("id")]
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) and all(name.startswith("mad-") for name in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', text)) <= set(ids)
    assert "<style" not in text and "date" not in text.lower()
    assert text == svg(figure) and svg(figure, "two").count('id="two-') == len(ids)


def test_a_frame_that_is_another_one_is_named(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("a,b\n1,x\n")
    assert read_frame(path, {"b": str, "a": int}, "numbers").to_dict("list") == {"b": ["x"], "a": [1]}
    with pytest.raises(ConfigError, match="one.csv: no numbers: without column 'c'"):
        read_frame(path, {"c": str}, "numbers")
    with pytest.raises(ConfigError, match="one.csv: no numbers"):
        read_frame(path, {"b": float}, "numbers")


def test_empty_cells_come_back_as_they_were(cells, tmp_path):
    from madbench.analysis.figures.mad import TYPES

    frame = mad_frame(cells({("S", "memorization"): [20.1, None], ("R", "memorization"): [float("nan")]}), "p")
    write_frame(frame, tmp_path / "mad.csv")
    again = read_frame(tmp_path / "mad.csv", TYPES, "accuracies")
    assert again.equals(frame)
    assert set(again.state) == {"", "diverged"}


def test_marks_lines_and_bands_may_be_none_or_not_finite():
    with style.style():
        axes = Figure().add_subplot()
        add_marks(axes, [], [])
        add_lines(axes, [], [])
        add_bands(axes, [], [])
        assert not axes.collections
        nowhere = np.full((2, 3), np.nan)
        add_bands(axes, [nowhere, np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 4.0]])], ["black", "black"])
        axes.autoscale_view()
    assert axes.dataLim.extents.tolist() == [0.0, 1.0, 3.0, 4.0]
    assert "<path" in svg(axes.get_figure())
