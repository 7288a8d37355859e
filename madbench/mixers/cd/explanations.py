"""Explanations of the letters of a ``cd:`` label, and cautions about their combinations."""

from __future__ import annotations

from collections.abc import Iterator

from madbench.labels import Explanation
from madbench.mixers.cd.grammar import CORE, DIAGONAL_GATES, PRESETS, CdLabel, fields_in, twin

SHARED = "It is a shared tensor, not a second copy."
POSITIVE = "Queries and keys become positive before the product."

READOUTS = {
    "exp": ("exponential", "Coefficients are positive and grow exponentially with the score.", "phi(s) = e^s"),
    "relu": ("ReLU", "Negative scores give a coefficient of exactly zero.", "phi(s) = max(s, 0)"),
    "softplus": ("softplus", "Coefficients are positive and grow linearly with the score.", "phi(s) = ln(1 + e^s)"),
    "elu": ("ELU + 1", "Coefficients are positive and grow linearly with the score.", "phi(s) = ELU(s) + 1"),
    "sigmoid": ("sigmoid", "Coefficients lie between 0 and 1.", "phi(s) = 1 / (1 + e^-s)"),
    "id": ("identity", "The score is the coefficient: a state of fixed size computes it.", "phi(s) = s"),
    "krelu": ("ReLU kernel", "Queries and keys go through ReLU before the product.", "psi(q) . A psi(b k), psi = ReLU"),
    "kelu": ("ELU + 1 kernel", POSITIVE, "psi(q) . A psi(b k), psi = ELU + 1"),
    "ksoftplus": ("softplus kernel", POSITIVE, "psi(q) . A psi(b k), psi = softplus"),
    "kexp": ("exponential kernel", POSITIVE, "psi(q) . A psi(b k), psi = exp"),
}
GATES = {
    "ss": (
        "scalar gate", "One gate per head shrinks past keys, as in a GRU.",
        "lambda_t = sigmoid(x_t w + c)", "Section 4.1",
    ),
    "sg": (
        "scalar gate", "One gate per head shrinks past keys, in GLA's parameterization.",
        "lambda_t = sigmoid(x_t w + c)^(1/16)", "footnote 8",
    ),
    "sm": (
        "scalar gate", "One gate per head shrinks past keys, in Mamba-2's parameterization.",
        "lambda_t = exp(-Delta_t e^a), Delta_t = softplus(x_t w + c)", "eq. 9",
    ),
    "se": (
        "scalar gate", "One gate per head scales past keys without a bound, as in mLSTM.",
        "lambda_t = exp(x_t w + c)", "eq. 12",
    ),
    "dg": (
        "diagonal gate", "One gate per key coordinate shrinks past keys, in GLA's parameterization of rank 16.",
        "lambda_t = sigmoid(x_t W1 W2 + c)^(1/16)", "footnote 8",
    ),
    "dm": (
        "diagonal gate", "One rate per key coordinate and one step per head shrink past keys, as in Mamba.",
        "lambda_t = exp(-Delta_t e^(a_r)), Delta_t = softplus(x_t w + c)", "Section 5, Figure 3",
    ),
}  # fmt: skip
STRENGTHS = {
    "1": ("a learned strength between 0 and 1", "beta_t = sigmoid(x_t w)"),
    "2": ("a learned strength between 0 and 2", "beta_t = 2 sigmoid(x_t w)"),
    "r": ("strength 2, a true reflection", "beta_t = 2"),
}
DIRECTIONS = {"k": ("its own key", "w_t = unit(k_t)"), "z": ("a learned vector", "w_t = unit(x_t W_z)")}
SCALINGS = {
    "b1": ("no scaling", "Keys are not scaled, so scores grow with the key width n.", "b_j = 1", "Principle 5"),
    "bz": ("learned scaling", "A gate of the token scales its key.", "b_j = sigmoid(x_j w_z)", "Appendix D.3"),
    "bd": ("scaling by the step", f"The gate's step scales the key. {SHARED}", "b_j = Delta_j", "Table 1, Mamba-2"),
    "bw": (
        "scaling by the mirror", f"The mirror's strength scales the key. {SHARED}", "b_j = beta_j", "Table 1, DeltaNet",
    ),
    "bi": ("input gate", "An unbounded gate of the token scales its key.", "b_j = exp(x_j w + c)", "eq. 12, mLSTM"),
    "bu": (
        "scaling by the gate", f"The key is scaled by the share that the gate forgets. {SHARED}",
        "b_j = 1 - lambda_j", "Section 4.1, GRU",
    ),
}  # fmt: skip
NORMS = {
    "sum": ("normalized by the sum", "Coefficients of a row add up to one.", "eta_i = sum_j alpha_ij", "Table 1"),
    "max": ("normalized by the sum, at least 1", "As in mLSTM.", "eta_i = max(|sum_j alpha_ij|, 1)", "eq. 12"),
    "pow": (
        "normalized by the gate's power", "Undoes the growth of a constant gate.", "eta_i = lambda^i", "Appendix D.4",
    ),
    "wx": ("learned normalization", "A positive function of the current token.", "eta_i = exp(x_i w_eta)", "Lemma 9"),
}  # fmt: skip
FEATURES = {
    "p": ("RoPE", "Queries and keys are rotated by position.", "q_t Rot(t), k_j Rot(j)", "Section 5"),
    "c": (
        "short convolution", ("q, k and v each go through a causal convolution over 4 tokens and SiLU, after the"
        " projection. The letter c of S/R/G convolves the inputs of K and V, without SiLU."),
        "q, k, v = SiLU(conv4(x W))", "Figure 12",
    ),
    "u": ("unit length", "Queries and keys have length 1.", "q / |q|, k / |k|", "Appendix B.6"),
    "g": (
        "output gate", "A gate of the current token scales the normalized output, the last part of the Type 2 block.",
        "y_i = RMSNorm(y_i) * SiLU(x_i W_G)", "Figure 12",
    ),
    "o": (
        "output gate", "A gate of the current token scales the output.",
        "y_i = y_i * sigmoid(x_i W_O + b_O)", "Lemma 14",
    ),
    "v": ("VO compressed", "The VO rank is reduced to keep the budget, instead of QK.", "r_vo below d", "this project"),
    "!": (
        "over budget", "No rank is reduced. The budget is reported but not enforced.",
        "r_qk = r_vo = d", "this project",
    ),
}  # fmt: skip


def explain(label: CdLabel) -> list[Explanation]:
    """One explanation per segment and feature letter of a label, in the order of the label, and then notes on it.

    The notes are the names of the label in the paper, cautions, and another label for the same function.
    """
    name, what, equation = READOUTS[label.readout]
    source = "eq. 3c" if label.readout != "sigmoid" else "this project"
    rows = [Explanation(label.readout, name, what, equation, "Lemma 8" if label.is_kernel else source)]
    if label.is_constant:
        what = f"Every step multiplies past keys by {label.gate}."
        equation = f"A_t = {label.gate} I"
        rows.append(Explanation(label.gate, "constant gate", what, equation, "Section 5 and Appendix D.4"))
    elif label.gate:
        rows.append(Explanation(label.gate, *GATES[label.gate]))
    if label.mirror:
        (towards, direction), (length, strength) = DIRECTIONS[label.mirror[1]], STRENGTHS[label.mirror[2]]
        what = f"Each token reflects past keys along {towards}, with {length}."
        equation = f"A_t = (I - beta_t w_t w_t^T) diag(lambda_t), {direction}, {strength}"
        rows.append(Explanation(label.mirror, "mirror", what, equation, "Lemma 4 and Section 3"))
    if label.scaling:
        name, what, equation, source = SCALINGS[label.scaling[:2]]
        by_width = label.scaling.endswith("n")
        equation = f"{equation} / sqrt(n)" if by_width else equation
        rows.append(Explanation(label.scaling, name, what, equation, source))
    if label.norm:
        rows.append(Explanation(label.norm, *NORMS[label.norm]))
    letters = [letter for letter, applies in (("p", label.rope), ("c", label.conv), ("u", label.unit)) if applies]
    letters += [*label.output, *label.rank, *(("!",) if label.over else ())]
    rows += [Explanation(letter, *FEATURES[letter]) for letter in letters]
    return rows + list(_notes(label))


def _notes(label: CdLabel) -> Iterator[Explanation]:
    """Yield notes on a label as a whole: names in the paper, cautions, and another label for the same function."""
    for name, free in PRESETS.items():
        preset = CdLabel(**fields_in(f"cd:{free}"))
        is_same = all(getattr(preset, field) == getattr(label, field) for field in CORE)
        if is_same and preset.unit <= label.unit and preset.output in ("", label.output):
            yield Explanation("", name, "A row of the paper's Table 1.", f"cd:{free}", "Table 1")
    if label.readout == "id" and label.norm == "sum":
        what = "The sum can change sign, so that coefficients are divided by almost zero and need not lie in [0, 1]."
        yield Explanation("", "sum under id", what, "", "against Corollary 6.1")
    grows = label.readout == "exp" or label.gate == "se" or label.scaling.startswith("bi")
    if (grows or label.has_growing_gate) and label.norm not in ("sum", "max"):
        what = "Coefficients are not divided by their sum and can grow without bound: expect the run to diverge."
        yield Explanation("", "not normalized", what, "", "Principle 6, Lemma 6")
    if label.rope and (label.is_kernel or label.gate in DIAGONAL_GATES or label.mirror.startswith("hz")):
        what = "Scores depend on absolute positions. RoPE stays relative only with scalar gates and mirrors along keys."
        yield Explanation("", "absolute positions", what, "", "this project")
    decays = label.gate not in ("", "se") and not label.has_growing_gate
    if decays and label.readout in ("exp", "softplus", "elu", "sigmoid"):
        what = "The gate acts on the score, so the coefficient of a forgotten token is phi(0), not 0."
        yield Explanation("", "decay is not forgetting", what, "alpha_ij -> phi(0)", "Section 5")
    if same := twin(label):
        what = f"A constant factor of b cancels: {same} is the same function of the same weights, unless value_skip"
        what += " adds the value to the readout."
        yield Explanation("", "another spelling", what, "", "Principle 5")
