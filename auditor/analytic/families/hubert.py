"""HuBERT, https://arxiv.org/abs/2106.07447: the model of wav2vec 2.0, taught differently."""

from functools import partial

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import heads
from auditor.analytic.families._speech import KEYS, ctc, layer, model, sequence

HUBERT = Family(
    model_type="hubert",
    prefix="hubert",
    base="HubertModel",
    keys=f"{KEYS} feat_proj_layer_norm conv_pos_batch_norm",
)


@architecture("HubertModel", HUBERT)
def hubert_model(c: Config) -> Module:
    return model(
        c,
        partial(layer, c),
        projection_norm=c.flag("feat_proj_layer_norm"),
        batch_norm=c.flag("conv_pos_batch_norm"),
    )


heads(HUBERT, "Hubert", hubert_model, ForCTC=ctc, ForSequenceClassification=sequence)
