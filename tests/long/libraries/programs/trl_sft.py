"""trl: a tiny Llama is tuned for two steps by SFTTrainer on random tokens."""

import tempfile

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

DISTRIBUTION = "trl"
MADE_BY = ["trl"]


def tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models

    words = {f"w{number}": number for number in range(62)} | {"<pad>": 62, "<eos>": 63}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")


def run() -> list[float]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, **sizes))
    rows = torch.randint(0, 62, (4, 16)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            max_steps=2,
            per_device_train_batch_size=2,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        )
        trainer = SFTTrainer(
            model=model,
            args=settings,
            train_dataset=Dataset.from_dict({"input_ids": rows}),
            processing_class=tokenizer(),
        )
        loss = trainer.train().training_loss
    return [loss, float(sum(p.sum().item() for p in model.parameters()))]
