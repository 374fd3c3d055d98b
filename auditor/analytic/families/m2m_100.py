"""M2M-100, https://arxiv.org/abs/2010.11125, and NLLB without experts."""

from auditor.analytic.blocks import Legacy, Module, Unbuildable, module
from auditor.analytic.catalogue import architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._seq2seq import Style, encoder_decoder, family, generation
from auditor.analytic.parts import padding, refused, unstored

M2M100 = family("m2m_100", "M2M100Model")


def positions(c: Config) -> Module:
    """Computed; the first versions kept them as a parameter, which the base class stored."""
    L, D = c.dim("max_position_embeddings") + 2, c.dim("d_model")
    wrong = padding(c, L) or sinusoids(c, L, D) or unstored(c, L, D)
    return module(weights=Legacy((L, D)), sinusoids=wrong)


def sinusoids(c: Config, places: Dim, width: Dim) -> Unbuildable | None:
    """Frequencies from 1 down to 1/10000 in even steps: of one alone there is no step."""
    if c.settled is None or (places.value and width.value >= 0 and width.value // 2 != 1):
        return None
    size, key = (width, "d_model") if places.value else (places, "max_position_embeddings")
    return refused(c, f"{size.named} is too little for sines and cosines of places", key)


@architecture("M2M100Model", M2M100)
def m2m_100_model(c: Config) -> Module:
    return encoder_decoder(c, Style(positions=positions, final_norm=True))


@architecture("M2M100ForConditionalGeneration", M2M100)
def for_conditional_generation(c: Config) -> Module:
    return generation(c, m2m_100_model(c), logits_bias=False)
