"""What finetuning.py compares: data, models and, for each row, a step of ours and one of what people use.

In: a row's name, a folder, threads, whether dropout is on. Out: functions of a step or of a turn; trainers with a loop of
their own ask for turns. Data are the same in each process.
"""
import functools
import pathlib
import random
import time

VOCAB, PARTS, MEMORY = 30522, 32, 600 << 20  # parts of the peer; bytes of ours, whose parts they decide
RATE = 1e-4
# row: (peers, items of a step, steps of a turn)
ROWS = {"pairs32": (("sentence_transformers",), 32, 2), "pairs256": (("sentence_transformers",), 256, 1),
        "classifier": (("transformers",), 16, 1),
        "compiled": (("transformers_compiled",), 16, 1), "tutorial": (("torch_loop",), 32, 6),
        "lora": (("peft_loop",), 4, 2)}
WARM = {"transformers_compiled": 3}  # turns before those that count: it compiles the first length, then any, and is ready
LAYERS, FEW = 2, 4  # of models whose losses are compared; their items
MINILM = dict(vocab_size=VOCAB, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
WORDS = [f"w{i}" for i in range(VOCAB - 5)]
LORA = dict(rank=8, alpha=16, dropout=0.05)
LANGUAGE = """
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = -100)
  }
  train objective { optimizer = "adamw"  lr = 1e-4  weight_decay = 0.01  clip_norm = 1 }
"""


def items(row, drop):
    """Of a step: without dropout it is only looked at what its loss is."""
    return ROWS[row][1] if drop else 2 * PARTS if row == "pairs256" else min(FEW, ROWS[row][1])


# ---- data: the same for all engines ----

def texts(n, seed, least=8, most=40):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(least, most))) for _ in range(n)]


def pairs():
    return texts(2000, 1), texts(2000, 2)


def reviews():
    return texts(2000, 3, 20, 120), [random.Random(i).randrange(4) for i in range(2000)]


def translations():
    rng = random.Random(4)
    rows = [lambda: [rng.randrange(1, 10000) for _ in range(32)]] * 3
    return [{name: row() for name, row in zip(("src", "tgt", "labels"), rows)} for _ in range(32 * 64)]


def rows_of_ids():
    rng = random.Random(5)
    return [[[rng.randrange(50257) for _ in range(128)] for _ in range(4)] for _ in range(64)]


# ---- what is trained: made once, in a process of its own, for all engines ----

def bert_folder(folder, drop, **sizes):
    """A tokenizer of words and a BERT, as transformers saves them."""
    import tokenizers
    import torch
    import transformers
    torch.manual_seed(0)
    known = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    transformers.BertTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]").save_pretrained(folder)
    made.enable_padding(pad_id=0, pad_token="[PAD]")
    made.save(str(folder / "ours.json"))
    rates = dict(hidden_dropout_prob=drop, attention_probs_dropout_prob=drop)
    if not drop:
        sizes["num_hidden_layers"] = LAYERS
    return transformers.BertConfig(**sizes, **rates)


def save_source(source, folder):
    """The text, and its weights as the compiler reads them."""
    from safetensors.torch import save_file
    (folder / "m.tfm").write_text(source.text)
    save_file({name: value.clone().contiguous() for name, value in source.weights.items()}, folder / "m.safetensors")


def prepare_pairs(folder, drop):
    import tfmc
    import torch
    import transformers
    functional = torch.nn.functional
    bert = transformers.BertModel(bert_folder(folder, drop, **MINILM), add_pooling_layer=False).eval()
    bert.save_pretrained(folder)

    class Pairs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def encode(self, ids):
            mask = (ids != 0).float()
            x = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            return functional.normalize((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))

        def forward(self, question, answer):
            return {"question": self.encode(question), "answer": self.encode(answer)}

    def in_batch(vectors):
        scores = vectors["question"] @ vectors["answer"].T * 20
        return functional.cross_entropy(scores, torch.arange(scores.shape[0]))
    example = {"question": torch.tensor([[5, 8, 2, 0], [9, 1, 3, 4]]), "answer": torch.tensor([[7, 2, 6], [4, 3, 0]])}
    save_source(tfmc.from_torch(Pairs().eval(), example, training=True, loss=in_batch, check=False, sizes={
        "question": {0: "batch", 1: "asked"}, "answer": {0: "batch", 1: "said"}}), folder)


def prepare_classifier(folder, drop):
    import tfmc
    import torch
    import transformers
    sizes = dict(vocab_size=VOCAB, num_labels=4)
    bert = transformers.BertForSequenceClassification(bert_folder(folder, drop, **sizes)).eval()
    bert.save_pretrained(folder)

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, ids, mask):
            return self.bert(input_ids=ids, attention_mask=mask).logits
    named = {0: "batch", 1: "time"}
    save_source(tfmc.from_torch(
        Whole().eval(), {"ids": torch.tensor([[5, 8, 2], [9, 1, 3]]), "mask": torch.ones(2, 3)}, targets={"labels": torch.tensor([1, 0])},
        training=True, check=False, sizes={"ids": named, "mask": named, "labels": {0: "batch"}},
        loss=lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels)), folder)


def translator(drop):
    import torch
    nn = torch.nn

    class Translator(nn.Module):
        """Tables, places from sines, nn.Transformer, a last layer."""

        def __init__(self, vocab=10000, d=512, heads=8, layers=6 if drop else LAYERS, ff=2048):
            super().__init__()
            self.source, self.target, self.drop, self.d = nn.Embedding(vocab, d), nn.Embedding(vocab, d), nn.Dropout(drop), d
            self.transformer = nn.Transformer(d, heads, layers, layers, ff, drop, batch_first=True)
            self.last = nn.Linear(d, vocab)
            angle = torch.arange(64.0)[:, None] * torch.exp(torch.arange(0.0, d, 2) * (-9.210340371976184 / d))
            self.register_buffer("places", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

        def embed(self, table, ids):
            return self.drop(table(ids) * self.d ** 0.5 + self.places[:ids.shape[1]])

        def forward(self, src, tgt):
            later = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
            padding = src == 0
            return self.last(self.transformer(
                self.embed(self.source, src), self.embed(self.target, tgt), tgt_mask=later, src_key_padding_mask=padding,
                tgt_key_padding_mask=tgt == 0, memory_key_padding_mask=padding))
    torch.manual_seed(0)
    return Translator()


def loss_of_tokens(logits, labels):
    import torch
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)


def prepare_tutorial(folder, drop):
    import tfmc
    import torch
    ids = torch.tensor([[5, 8, 2, 4], [9, 1, 3, 0]])
    save_source(tfmc.from_torch(
        translator(drop).eval(), {"src": ids, "tgt": ids[:, :3]}, targets={"labels": ids[:, :3]}, training=True, check=False, loss=loss_of_tokens,
        sizes={"src": {0: "batch", 1: "source"}, "tgt": {0: "batch", 1: "time"}, "labels": {0: "batch", 1: "time"}}), folder)


def prepare_lora(folder, drop):
    import torch
    import transformers
    torch.manual_seed(0)
    layers = {} if drop else {"n_layer": LAYERS}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**layers, resid_pdrop=drop, embd_pdrop=drop, attn_pdrop=drop))
    with torch.no_grad():
        for weight in model.parameters():  # numbers that bf16 has: those of both, whatever they are kept in
            if weight.dim() > 1:
                weight.copy_(weight.bfloat16().float())
    model.save_pretrained(folder)


# ---- engines: each is (a function of one step, which returns the loss) ----

def trainer_of(folder, threads, memory=None):
    import tfmc
    return tfmc.Trainer(folder / "m.tfm", weights=folder / "m.safetensors", optimizer="adamw", lr=RATE, weight_decay=0.01,
                        clip_norm=1, seed=1, threads=threads, memory=memory)


def padded(tokenizer, rows):
    import numpy as np
    return np.array([row.ids for row in tokenizer.encode_batch(rows)], np.int32)


def ours_pairs(row, folder, threads, drop):
    import tokenizers
    n, at = items(row, drop), 0
    tokenizer, (asked, said) = tokenizers.Tokenizer.from_file(str(folder / "ours.json")), pairs()
    trainer = trainer_of(folder, threads, MEMORY if n > PARTS else None)

    def step():
        nonlocal at
        batch = {"question": padded(tokenizer, asked[at:at + n]), "answer": padded(tokenizer, said[at:at + n])}
        at = (at + n) % (2000 - n)
        return trainer.step(batch).loss
    return step


def ours_classifier(row, folder, threads, drop):
    import numpy as np
    import tokenizers
    tokenizer, trainer, (said, labels) = tokenizers.Tokenizer.from_file(str(folder / "ours.json")), trainer_of(folder, threads), reviews()
    n, at = items(row, drop), 0

    def step():
        nonlocal at
        ids = padded(tokenizer, said[at:at + n])
        made = trainer.step(ids=ids, mask=(ids != 0).astype(np.float32), labels=np.array(labels[at:at + n], np.int32))
        at = (at + n) % (2000 - n)
        return made.loss
    return step


def ours_tutorial(row, folder, threads, drop):
    """A turn is a run of its own. Steps are counted from the end of the first: what begins a run is not in them. Losses are
    compared of items in their order, which a run shuffles."""
    rows, size = translations(), items(row, drop)

    def in_order(trainer, n):
        batches = [rows[at:at + size] for at in range(0, size * n, size)]
        losses = [trainer.step({name: [item[name] for item in batch] for name in rows[0]}).loss for batch in batches]
        return [0.0] * n, losses

    def turn(n):
        trainer = trainer_of(folder, threads)
        if not drop:
            return in_order(trainer, n)
        fit = trainer.fit(rows[:size * n], steps=n, batch_items=size, log_every=1, pool=32)
        steps = [r for r in fit.history if r["kind"] == "step"]
        return [r["seconds"] for r in steps], [r["loss"] for r in steps]
    return turn


def ours_lora(row, folder, threads, drop):
    import tfmc
    targets = ["*.c_attn"]
    source = tfmc.lora(tfmc.import_model(str(folder)), rank=LORA["rank"], alpha=LORA["alpha"], targets=targets, dropout=drop and LORA["dropout"])
    trainer = tfmc.Trainer(source, objective=LANGUAGE, seed=1, threads=threads, frozen="bf16")
    return over_rows(lambda ids: trainer.step(ids=ids, labels=ids).loss)


def over_rows(step_of):
    import numpy as np
    rows, at = rows_of_ids(), 0

    def step():
        nonlocal at
        at += 1
        return step_of(np.array(rows[at % len(rows)], np.int32))
    return step


def callback(answer, said):
    """Begins a turn when training begins, and tells of each step that it ended."""
    import transformers

    class Callback(transformers.TrainerCallback):
        def on_train_begin(self, *_, **__):
            answer(None)

        def on_step_end(self, *_, **__):
            answer(float(said[0].detach()))
    return Callback()


def arguments_of(kind, folder, n, **more):
    return kind(output_dir=str(folder / "peer"), per_device_train_batch_size=n, max_steps=100000, learning_rate=RATE, weight_decay=0.01,
                lr_scheduler_type="constant", max_grad_norm=1.0, use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
                logging_strategy="no", dataloader_drop_last=True, optim="adamw_torch_fused", seed=1, **more)


def recording(module, said):
    """The module's loss, last computed, goes into the list."""
    forward = module.forward

    @functools.wraps(forward)
    def kept(*given, **named):
        made = forward(*given, **named)
        value = made["loss"] if isinstance(made, dict) or hasattr(made, "loss") else made
        said[:] = [value]
        return made
    module.forward = kept


def in_order(trainer):
    """Items in the order in which they stand: that of the other engine."""
    import torch
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
    return trainer


def peer_pairs(row, folder, threads, drop, answer):
    import datasets
    import sentence_transformers as st
    from sentence_transformers import losses, models
    word = models.Transformer(str(folder))
    model = st.SentenceTransformer(modules=[word, models.Pooling(word.get_word_embedding_dimension())])
    n, said, (asked, answers) = items(row, drop), [], pairs()
    loss = (losses.MultipleNegativesRankingLoss(model) if n <= PARTS else
            losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=PARTS))
    recording(loss, said)
    arguments = arguments_of(st.SentenceTransformerTrainingArguments, folder, n)
    trainer = st.SentenceTransformerTrainer(model=model, args=arguments, loss=loss, callbacks=[callback(answer, said)],
                                            train_dataset=datasets.Dataset.from_dict({"anchor": asked, "positive": answers}))
    trainer.get_batch_sampler = lambda dataset, batch_size, drop_last, **_: _batches(dataset, batch_size, drop_last)
    trainer.train()


def _batches(dataset, batch_size, drop_last):
    import torch
    return torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(dataset), batch_size, drop_last)


def peer_classifier(row, folder, threads, drop, answer, compiled=False):
    import datasets
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    said, (words, labels) = [], reviews()

    def collated(items):
        made = tokenizer([item["text"] for item in items], padding=True, return_tensors="pt")
        made["labels"] = transformers.default_data_collator([{"labels": item["label"]} for item in items])["labels"]
        return made
    recording(model, said)
    arguments = arguments_of(transformers.TrainingArguments, folder, items(row, drop), remove_unused_columns=False, torch_compile=compiled)
    in_order(transformers.Trainer(model=model, args=arguments, data_collator=collated, callbacks=[callback(answer, said)],
                                  train_dataset=datasets.Dataset.from_dict({"text": words, "label": labels}))).train()


def optimizer_of(module):
    import torch
    return torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=RATE, weight_decay=0.01, fused=True)


def stepped(module, optimizer, loss):
    import torch
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in module.parameters() if p.requires_grad], 1)
    optimizer.step()
    return loss.item()


def peer_tutorial(row, folder, threads, drop):
    import torch
    rows, size = translations(), items(row, drop)

    def turn(n):
        module = translator(drop).train()
        optimizer, losses, ends = optimizer_of(module), [], []
        for at in range(0, size * n, size):
            batch = {name: torch.tensor([item[name] for item in rows[at:at + size]]) for name in rows[0]}
            losses.append(stepped(module, optimizer, loss_of_tokens(module(batch["src"], batch["tgt"]), batch["labels"])))
            ends.append(time.monotonic())
        return ends, losses
    return turn


def peer_lora(row, folder, threads, drop):
    import peft
    import torch
    import transformers
    torch.manual_seed(1)
    base = transformers.GPT2LMHeadModel.from_pretrained(folder)
    module = peft.get_peft_model(base, peft.LoraConfig(r=LORA["rank"], lora_alpha=LORA["alpha"], lora_dropout=drop and LORA["dropout"],
                                                       target_modules=["c_attn"], fan_in_fan_out=True)).train()
    optimizer = optimizer_of(module)

    def step_of(ids):
        ids = torch.from_numpy(ids).long()
        return stepped(module, optimizer, torch.nn.functional.cross_entropy(module(ids).logits.flatten(0, 1), ids.flatten()))
    return over_rows(step_of)


PREPARE = {"pairs32": prepare_pairs, "pairs256": prepare_pairs, "classifier": prepare_classifier, "compiled": prepare_classifier, "tutorial": prepare_tutorial, "lora": prepare_lora}
OURS = {"pairs32": ours_pairs, "pairs256": ours_pairs, "classifier": ours_classifier, "compiled": ours_classifier, "tutorial": ours_tutorial, "lora": ours_lora}
# kind of engine by what it gives: "step": a function of a step; "turn": of n steps, with the time at
# the end of each; "loop": it runs by itself and calls answer
PEERS = {"sentence_transformers": (peer_pairs, "loop"), "transformers": (peer_classifier, "loop"),
         "transformers_compiled": (functools.partial(peer_classifier, compiled=True), "loop"), "torch_loop": (peer_tutorial, "turn"),
         "peft_loop": (peer_lora, "step")}


def engine_of(name, row):
    """(function, its kind)."""
    return (OURS[row], "turn" if row == "tutorial" else "step") if name == "ours" else PEERS[name]
