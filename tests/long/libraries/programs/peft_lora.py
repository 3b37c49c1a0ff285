"""peft: LoRA layers are added to a tiny Llama, trained for a step and merged."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

DISTRIBUTION = "peft"


def run() -> list[float]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    base = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, **sizes))
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    tokens = torch.randint(0, 64, (2, 16))
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    merged = model.merge_and_unload()
    return [loss.item(), merged(input_ids=tokens, labels=tokens).loss.item()]
