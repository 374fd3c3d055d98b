"""DeiT, https://arxiv.org/abs/2012.12877: a ViT with a token that learns from a teacher."""

from auditor.analytic.blocks import Module, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._vision import classifier, pixels
from auditor.analytic.families.vit import VIT, VIT_RENAMES, vit_model
from auditor.analytic.family import LoadingFacts, loads

DEIT = Family(
    model_type="deit",
    prefix="deit",
    base="DeiTModel",
    keys=VIT.keys,
)


@architecture("DeiTModel", DEIT)
def deit_model(c: Config, *, pooler: bool = True, mask: bool = False) -> Module:
    return vit_model(c, pooler=pooler, mask=mask, distilled=True)


@architecture("DeiTForImageClassification", DEIT)
def for_image_classification(c: Config) -> Module:
    head = classifier(c, c.dim("hidden_size"))
    return module(deit=deit_model(c, pooler=False), classifier=head)


@architecture("DeiTForImageClassificationWithTeacher", DEIT)
def for_image_classification_with_teacher(c: Config) -> Module:
    head = classifier(c, c.dim("hidden_size"))
    return module(
        deit=deit_model(c, pooler=False), cls_classifier=head, distillation_classifier=head
    )


@architecture("DeiTForMaskedImageModeling", DEIT)
def for_masked_image_modelling(c: Config) -> Module:
    decoder = pixels(c, c.dim("hidden_size"))
    return module(deit=deit_model(c, pooler=False, mask=True), decoder=decoder)


loads("DeiTModel", LoadingFacts(rules=VIT_RENAMES))
