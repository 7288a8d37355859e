"""Notes name the labels on which settings were chosen; captions for papers do not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from madbench.errors import ConfigError
from madbench.labels import expand
from madbench.suites import find_suite
from madbench.suites.mad.suite import MAD

VERBS = (["table"], ["compare", "S", "S-c"], ["attribute"], ["findings"], ["audit"])


def of_quick(fill, profile="quick") -> None:
    for place, label in enumerate(("S", "S-c", "R", "R-c")):
        for seed in range(3):
            fill(label, 0.5 + 0.1 * place + 0.01 * seed, [seed], profile=profile)


@pytest.mark.slow
@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_notes_name_the_labels_on_which_settings_were_chosen(main, fill, words, tmp_path):
    longer = (MAD.Profile.folder / "evening.yaml").read_text().replace("epochs: 8", "epochs: 9")
    (tmp_path / "longer.yaml").write_text(longer)
    of_quick(fill, str(tmp_path / "longer.yaml"))
    choice = "The settings were chosen on the labels of @choosing."
    command = [*words, "-p", "longer.yaml", "-t", "compression,in_context_recall"]
    assert choice in " ".join(main(*command, "--notes").stdout.split())
    assert (choice in " ".join(main(*command).stdout.split())) is (words == ["audit"])


def test_stored_language_runs_name_the_set_on_which_their_profile_was_chosen():
    language, corpus = find_suite("language"), SimpleNamespace(digest="c0ffee0123456789", padded_vocab_size=320)
    for profile, chosen_on in {"small": "small-pilots", "tiny": ""}.items():
        (job,) = language.jobs(["S"], language.Profile.load(profile), corpus=corpus)
        assert language.profile_of(job, *language.nearest(job)).chosen_on == chosen_on


def test_chosen_on_names_an_existing_set_in_the_profiles_file(tmp_path):
    assert MAD.Profile.load("evening").chosen_labels() == set(map(str, expand(["@choosing"])))
    assert MAD.Profile.load("quick").chosen_labels() == set()
    assert find_suite("language").Profile.load("small").chosen_labels() == set(expand(["@small-pilots"]))
    text = (MAD.Profile.folder / "evening.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("chosen_on: choosing", "chosen_on: chosing"))
    with pytest.raises(ConfigError, match="chosen_on: .*chosing.*choosing"):
        MAD.Profile.load(str(path))
    with pytest.raises(ConfigError, match="belongs in the profile's file"):
        MAD.Profile.load("evening", ["chosen_on=judging"])
