"""stable_baselines3: a callback gets `locals()` of `learn`, among which is the callback."""

import torch._dynamo  # noqa: F401  # or the first optimizer leaks as well
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback


class Count(BaseCallback):
    def _on_step(self) -> bool:
        return True


def leak() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=1, device="cpu")
    model.learn(64)
    model.learn(64, callback=Count())


def remedied() -> None:
    callback = Count()
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=1, device="cpu")
    model.learn(64, callback=callback)
    callback.locals = {}
