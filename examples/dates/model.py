"""The model of dates.tfm in PyTorch, and dates as tensors for it. Names of weights are those of dates.tfm."""
import math
import torch
from torch import nn
import dates_data as data


def sinusoid(length, width):
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(
        torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(length, width).float()


class Dates(nn.Module):
    def __init__(self, vocab=data.VOCABULARY, d_model=64, nhead=4, layers=2):
        super().__init__()
        self.src_embed = nn.Embedding(vocab, d_model)
        self.tgt_embed = nn.Embedding(vocab, d_model)
        self.transformer = nn.Transformer(d_model, nhead, layers, layers, 2 * d_model, dropout=0.0, batch_first=True)
        self.transformer.encoder.use_nested_tensor = False  # else it warns of a prototype
        self.generator = nn.Linear(d_model, vocab)
        self.register_buffer("position", sinusoid(data.LONGEST, d_model), persistent=False)
        for embedding in (self.src_embed, self.tgt_embed):
            nn.init.normal_(embedding.weight, std=d_model ** -0.5)

    def embedded(self, embedding, ids):
        return embedding(ids) * math.sqrt(embedding.embedding_dim) + self.position[:ids.shape[1]]

    def forward(self, src, tgt):
        """src [batch, source], tgt [batch, time] -> logits [batch, time, vocab]."""
        time = tgt.shape[1]
        causal = torch.ones(time, time, dtype=torch.bool).triu(1)
        padding = src == data.PADDING
        hidden = self.transformer(self.embedded(self.src_embed, src), self.embedded(self.tgt_embed, tgt),
                                  tgt_mask=causal, src_key_padding_mask=padding,
                                  tgt_key_padding_mask=tgt == data.PADDING, memory_key_padding_mask=padding)
        return self.generator(hidden)

    @torch.no_grad()
    def translate(self, src):
        """The likeliest character at each place: [batch, 1 + ISO_LENGTH + 1] ids."""
        tgt = torch.full((len(src), 1), data.BEGINNING)
        while tgt.shape[1] < data.ISO_LENGTH + 2:
            tgt = torch.cat([tgt, self(src, tgt)[:, -1:].argmax(-1)], dim=1)
        return tgt


def source_ids(texts):
    """[texts, longest], padded on the right."""
    rows = [torch.tensor(data.ids(text)) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=data.PADDING)


def target_ids(dates):
    """[dates, 1 + ISO_LENGTH + 1]."""
    return torch.tensor([[data.BEGINNING, *data.ids(date), data.END] for date in dates])
