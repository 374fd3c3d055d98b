from support.strategies.bert import encoder_values
from support.strategies.common import sizes

VALUES = {
    "albert": encoder_values(
        embedding_size=sizes(12),
        num_hidden_groups=sizes(3, least=0),
        inner_group_num=sizes(3, least=0),
    )
}
