"""stable_baselines3: PPO learns CartPole for 128 steps, with a callback."""

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

DISTRIBUTION = "stable-baselines3"
MADE_BY = ["stable-baselines3"]


class Count(BaseCallback):
    def _on_step(self) -> bool:
        return True


def run() -> list[float]:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=2, seed=0, device="cpu")
    model.learn(128, callback=Count())
    return [float(sum(p.sum().item() for p in model.policy.parameters()))]
