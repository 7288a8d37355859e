"""The report page in headless Chromium, opened from disk: layout, sorting, runs behind a number, keyboard,
accessibility."""

from __future__ import annotations

import shlex
import shutil

import pytest

from madbench.cli.shared.words import labels_and_overrides
from madbench.experiment import ExperimentOptions, prepare
from madbench.rows import Grid, Row
from madbench.store.runs import Store

pytestmark = pytest.mark.slow  # one browser for all, but the figures and Chromium take about ten seconds

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 800}}
COLUMN = (
    "[...document.querySelectorAll('#mad-table tbody:not([hidden]) tr:first-child th')].map((one) => one.innerText)"
)
CONTRAST = """() => {
  const luminance = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)
      .map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    const isClear = color === "transparent" || /, 0\\)$/.test(color);
    if (isClear && element.parentElement) return background(element.parentElement);
    return isClear ? "rgb(255, 255, 255)" : color;
  };
  const low = [];
  for (const element of document.querySelectorAll("body *:not(svg *):not(script):not(style)")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || !element.getClientRects().length) continue;
    const pair = [luminance(getComputedStyle(element).color), luminance(background(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) low.push(`${element.tagName} ${element.className} ${contrast.toFixed(2)}`);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'madbench[test]'")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser on the PATH: {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def show(browser, page_file):
    """``show(hash, size, ...)``: the page in a browser. Fails if it accesses the network or logs an error."""
    contexts, wrong, asked = [], [], []

    def call(hash: str = "", size: str = "desktop", **choices):
        context = browser.new_context(viewport=SIZES[size], offline=True, reduced_motion="reduce", **choices)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri() + hash)
        return page

    yield call
    for context in contexts:
        context.close()
    assert not wrong
    assert all(url.startswith(page_file.as_uri()) for url in asked)


@pytest.mark.parametrize("size", SIZES)
def test_the_page_never_scrolls_sideways(show, size):
    page = show(size=size)
    width = SIZES[size]["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#mad-table a.runs").nth(1).click()
    page.locator("#view").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("(view => view.scrollWidth <= view.clientWidth)(document.getElementById('view'))")


def test_a_phone_shows_every_cell_of_the_findings_without_scrolling_their_table(show):
    hidden = show(size="phone").evaluate(
        """() => [...document.querySelectorAll(".finding > *")]
            .filter((one) => one.getClientRects().length && one.getBoundingClientRect().right > innerWidth)
            .map((one) => one.textContent)"""
    )
    assert hidden == []


def test_words_after_a_number_have_the_font_weight_of_text(show):
    weights = "[...document.querySelectorAll('.rest')].map((one) => getComputedStyle(one).fontWeight)"
    assert set(show().evaluate(weights)) == {"400"}


def test_headings_sort_by_click_and_by_keyboard(show):
    page = show()
    assert page.evaluate(COLUMN) == ["S", "S-c", "R-c"]
    heading = page.locator("#mad-table thead th").nth(1)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert page.evaluate(COLUMN)[-1] == "S"
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert page.evaluate(COLUMN)[0] == "S"
    assert "sorted by Compr., ascending" in page.locator("#said").inner_text()
    other = page.locator("#mad-table thead th").nth(2)
    for _ in range(2):
        other.locator("button").press("Space")
        assert page.evaluate(COLUMN)[-1] == "R-c"  # which has no number there
    assert heading.get_attribute("aria-sort") is None
    page.locator("#mad-table thead button").first.click()
    assert page.evaluate(COLUMN) == ["S", "S-c", "R-c"]


def test_labels_are_filtered_in_every_table(show):
    page = show()
    page.get_by_label("Labels with").fill("S")
    assert page.evaluate(COLUMN) == ["S", "S-c"]
    assert page.locator("#filter-count").inner_text() == "2 of 3"
    assert page.locator("#budget-table tbody:visible").count() == page.locator("#budget-table [data-label^=S]").count()
    page.get_by_label("Labels with").fill("")
    assert len(page.evaluate(COLUMN)) == 3


def test_a_number_opens_its_runs_and_escape_returns_the_focus(show):
    page = show()
    cell = page.locator('#mad-table td[data-link="runs/S-c/compression"] a')
    cell.focus()
    page.keyboard.press("Enter")
    view = page.locator("#view")
    view.wait_for()
    assert page.locator("#view-title").inner_text() == "S-c: compression"
    assert view.locator("tbody tr").count() == 4
    assert view.locator("tr.counting").count() == 3  # both rates of the seed that chooses, and the one that is reported
    assert "Depthwise causal convolutions" in view.inner_text()
    assert page.evaluate("document.activeElement.id") == "view-title"
    page.keyboard.press("Escape")
    assert not view.is_visible()
    assert page.evaluate("document.activeElement.parentElement.dataset.link") == "runs/S-c/compression"
    assert "#" not in page.url


def test_a_hash_in_the_address_opens_the_page_of_its_run(show, store, profile):
    runs = (run for run in store.runs(suite="mad") if run.job.label == "S-c" and run.record.status == "finished")
    run = next(runs)
    page = show(f"#run-{run.job.id}")
    text = page.locator("#view").inner_text()
    for part in (
        run.job.id,
        f"{100 * run.record.metrics['accuracy']:.1f}%",
        "a slide rule",
        "9.9",
        "short convolution",
    ):
        assert part in text, part
    command = page.locator("#view code.command").inner_text()
    verb, *words = shlex.split(command)[1:]
    assert verb == "run" and words[-1] == "--force"
    options = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("-")}
    labels, overrides = labels_and_overrides([words[0], *(word for word in words if "=" in word)])
    choices = (tuple(map(Row, labels)), (options["-t"],), (int(options["--seeds"]),), options["--profile"])
    made = prepare(Grid(*choices, overrides=overrides), ExperimentOptions(device="cpu"))
    assert [job.id for job in made.jobs] == [run.job.id] and options["--profile"] == profile
    page.keyboard.press("Escape")
    assert not page.locator("#view").is_visible()


def test_the_page_of_a_failed_missing_or_unknown_run_names_its_state(show, store: Store):
    failed = next(run for run in store.runs() if run.record.status == "failed")
    page = show(f"#run-{failed.job.id}")
    assert failed.record.error in page.locator("#view .error").inner_text()
    assert page.title().startswith("madbench report")
    assert page.locator("#view code.command").inner_text().endswith("--seeds 1")
    page.goto(page.url.split("#")[0] + "#runs/R-c/in_context_recall")
    page.locator("#view-title", has_text="R-c: in-context recall").wait_for()
    assert "0 of 2 jobs have a result" in page.locator("#view").inner_text()
    assert "missing" in page.locator("#view table").inner_text()
    page.goto(page.url.split("#")[0] + "#run-nothing")
    page.locator("#view", has_text="no run of this id").wait_for()
    page.goto(page.url.split("#")[0] + "#runs/constructor/")
    page.locator("#view", has_text="no such runs").wait_for()
    page.goto(page.url.split("#")[0] + "#runs/%E0%A4%A/x")
    page.locator("#view").wait_for(state="hidden")


def test_effects_open_their_pairs_and_language_models_their_curves(show):
    page = show("#effect/conv%3A%20c%20vs.%20none/loss_l5")
    assert "S-c" in page.locator("#view tbody").inner_text()
    page.locator("#view tbody a", has_text="S-c").click()
    page.locator("#view-title", has_text="S-c: language model, L5").wait_for()
    page.locator("#view tbody a").first.click()
    page.locator("#view .curves svg").first.wait_for()
    names = [one.get_attribute("aria-label") for one in page.locator("#view .curves svg").all()]
    assert [name.split(" from ")[0] for name in names] == ["train loss", "validation loss"]
    assert page.locator("#view code.command").inner_text().startswith("madbench run S-c -t language_model ")


def test_every_control_is_reached_by_keyboard_and_shows_its_focus(show):
    page = show()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    unreachable = page.evaluate(
        """[...document.querySelectorAll('.scroll, nav')]
            .filter((one) => one.scrollWidth > one.clientWidth && one.tabIndex < 0 && !one.querySelector('a'))
            .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert unreachable == []
    page.keyboard.press("Tab")
    width, style = page.evaluate("(s => [s.outlineWidth, s.outlineStyle])(getComputedStyle(document.activeElement))")
    assert (width, style) == ("3px", "solid")


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(show, color_scheme):
    page = show(color_scheme=color_scheme)
    assert page.evaluate(CONTRAST) == []
    page.locator("#mad-table a.runs").nth(1).click()
    page.locator("#view").wait_for()
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_figures_have_the_colors_of_the_page(show, color_scheme):
    page = show(color_scheme=color_scheme)
    wrong = page.evaluate(
        """() => {
            const of_page = getComputedStyle(document.body);
            const [text, ground] = [of_page.color, of_page.backgroundColor];
            const wrong = [];
            for (const svg of document.querySelectorAll("figure svg")) {
                const fills = [...svg.querySelectorAll("text")].map((one) => getComputedStyle(one).fill);
                if (!fills.includes(text) || fills.includes("rgb(0, 0, 0)")) wrong.push(...fills);
                const patch = getComputedStyle(svg.querySelector("path")).fill;
                if (patch !== ground) wrong.push(patch);
                const ticks = [...svg.querySelectorAll("use")].map((one) => getComputedStyle(one).stroke);
                if (!ticks.includes(text)) wrong.push(...ticks);
            }
            return wrong;
        }"""
    )
    assert wrong == []


def test_the_page_begins_with_tables_and_ends_with_missing_runs(show):
    names = show().evaluate("[...document.querySelectorAll('main > section')].map((one) => one.id)")
    assert names[:3] == ["tables", "comparison", "findings"] and names[-2:] == ["provenance", "missing"]


def test_axe_finds_no_accessibility_violations(show):
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="needs axe: pip install axe-core-python").Axe()
    page = show()
    violations = []
    for hash in ("", "#runs/S-c/compression"):
        page.goto(page.url.split("#")[0] + hash)
        rules = {"color-contrast": {"enabled": 0}}  # test_all_text_has_enough_contrast is faster by far
        found = axe.run(page, context={"exclude": [["figure svg"]]}, options={"rules": rules})["violations"]
        violations += [f"{one['id']}: {node['html'][:120]}" for one in found for node in one["nodes"]]
    assert violations == []


def test_without_a_script_tables_and_figures_can_be_read(show):
    page = show(java_script_enabled=False)
    assert page.locator("#mad-table tbody").first.is_visible() and page.locator("figure svg").count() >= 4
    assert "Without JavaScript" in page.locator("noscript").inner_text()
    assert page.locator(".only-script").first.is_hidden() and page.locator("#filter").is_hidden()


def test_the_page_is_printed_on_white_without_controls(show):
    page = show(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".bar").is_hidden()
    assert len(page.pdf()) > 10_000


def test_every_figure_is_an_image_with_a_name(show):
    page = show()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(set(ids)) == len(ids)
    pictures = page.locator("figure svg[role=img]")
    assert pictures.count() >= 4
    for picture in pictures.all():
        for name in picture.get_attribute("aria-labelledby").split():
            assert name in ids
