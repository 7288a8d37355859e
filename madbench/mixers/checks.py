"""Checks that a mixer of any family passes, at a small size in float64, and what running those of a label gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from madbench.labels import family_of, parse
from madbench.mixers import Check, Family, Size

if TYPE_CHECKING:
    from torch import Tensor, nn

SMALL = Size(d_model=16, n_head=2, max_len=8, budget="paper")  # paper: every label fits
ROUNDING = 1e-9


@dataclass(frozen=True)
class Outcome:
    """What running a check gave."""

    check: Check
    residual: float | None = None  # None where the check does not apply, or did not get as far
    error: str = ""  # what kept it from measuring

    @property
    def verdict(self) -> Literal["pass", "fail", "not applicable"]:
        if self.error:
            return "fail"
        if self.check.run is None:
            return "not applicable"
        return "pass" if self.check.holds(self.residual) else "fail"

    @property
    def row(self) -> dict[str, Any]:
        """For a table: check, verdict, residual, bound, statement, source, and why there is no residual."""
        check = self.check
        bound = f"{'>' if check.is_difference else '<='} {check.tolerance:.0e}".replace("0e+00", "0")
        found = {"check": check.name, "verdict": self.verdict, "residual": self.residual, "bound": bound}
        return found | {"statement": check.statement, "source": check.source, "reason": self.error or check.reason}


def run_checks(label: Any) -> list[Outcome]:
    """The outcome of every check of a label or its text; one that raises has failed, with the error as its reason."""
    import torch

    label = parse(label) if isinstance(label, str) else label
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more are in each other's way at these sizes
    outcomes = []
    try:
        for check in family_of(label).checks(label):
            outcomes.append(run_check(check))
    except Exception as error:
        check = Check("checks", "The family has checks of this label.", "the protocol", None)
        outcomes.append(Outcome(check, error=_named(error)))
    finally:
        torch.set_num_threads(threads)
    return outcomes


def run_check(check: Check) -> Outcome:
    """What the check gives, whatever it raises."""
    if check.run is None:
        return Outcome(check)
    import torch

    try:
        with torch.no_grad():
            residual = float(check.run())
    except Exception as error:
        return Outcome(check, error=_named(error))
    if not math.isfinite(residual):
        return Outcome(check, error=f"the residual is {residual}")
    return Outcome(check, residual)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def sample(family: Family, label: Any, path: str = "auto", size: Size = SMALL) -> tuple[nn.Module, Tensor]:
    """A small mixer of the label, always the same, with weights that show, and an input."""
    settings = family.Settings()
    return filled(lambda: family.build(family.solve(label, size, settings), settings, path))


def filled(build: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    """What ``build`` makes, in float64 with the same weights at every call, and an input (2, max_len, d_model)."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer = build().double()
        for parameter in mixer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        size = mixer.allocation.size
        return mixer.eval().requires_grad_(False), torch.randn(2, size.max_len, size.d_model).double()


def difference(given: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative to ``expected``."""
    return float((given - expected).norm() / expected.norm().clamp(min=1e-30))


def decoded(mixer: nn.Module, x: Tensor, cache: Any = None, **how: Any) -> Tensor:
    """The rows of x (B, T, D) by one step a token, after what the cache holds."""
    import torch

    rows = []
    for token in x.unbind(1):
        row, cache = mixer.step(token, cache, **how)
        rows.append(row)
    return torch.stack(rows, dim=1)


def general_checks(family: Family, label: Any) -> Iterable[Check]:
    """Exact parameter count, causality, and decoding step by step and after a prompt where the mixer can."""

    def parameters(mixer: nn.Module, x: Tensor) -> float:
        return abs(sum(parameter.numel() for parameter in mixer.parameters()) - mixer.allocation.total)

    def causality(mixer: nn.Module, x: Tensor) -> float:
        changed = x.clone()
        changed[:, 5:] += 1
        return difference(mixer(changed)[:, :5], mixer(x)[:, :5])

    def steps(mixer: nn.Module, x: Tensor) -> float:
        return difference(decoded(mixer, x), mixer(x))

    def prefill(mixer: nn.Module, x: Tensor) -> float:
        import torch

        y, cache = mixer.prefill(x[:, :5])
        return difference(torch.cat((y, decoded(mixer, x[:, 5:], cache)), dim=1), mixer(x))

    def check(name: str, what: str, source: str, measure: Callable[..., float], tolerance: float = ROUNDING) -> Check:
        return Check(name, what, source, lambda: measure(*sample(family, label)), tolerance)

    yield check("parameters", "The module has exactly the parameters of its allocation.", "the budget", parameters, 0)
    yield check("causality", "Later tokens do not change earlier outputs.", "causal mixing", causality)
    mixer, _ = sample(family, label)
    if hasattr(mixer, "step"):
        yield check("steps", "Decoding token by token gives the parallel outputs.", "decoding", steps)
    if hasattr(mixer, "prefill"):
        what = "Decoding a prompt at once, then token by token, gives the parallel outputs."
        yield check("prefill", what, "decoding", prefill)
