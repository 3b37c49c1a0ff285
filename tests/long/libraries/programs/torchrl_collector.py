"""torchrl: a random environment is collected into a replay buffer and trained on."""

import torch
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss

DISTRIBUTION = "torchrl"
MADE_BY = ["torchrl", "tensordict"]


def run() -> list[float]:
    env = TransformedEnv(GymEnv("CartPole-v1", device="cpu"), StepCounter())
    env.set_seed(0)
    network = torch.nn.Linear(4, 2)
    module = TensorDictModule(network, in_keys=["observation"], out_keys=["action_value"])
    actor = QValueActor(module, spec=env.action_spec)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(64), batch_size=8)
    with torch.no_grad():
        buffer.extend(env.rollout(16, actor, break_when_any_done=False))
    loss = DQNLoss(actor, delay_value=True, action_space=env.action_spec)
    losses = loss(buffer.sample())
    losses["loss"].backward()
    env.close()
    return [losses["loss"].item(), float(network.weight.grad.sum())]
