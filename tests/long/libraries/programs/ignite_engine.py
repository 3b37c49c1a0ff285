"""pytorch-ignite: an Engine trains for two epochs; its handlers and an evaluator's link them."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping, TerminateOnNan
from ignite.metrics import Loss, MeanSquaredError

DISTRIBUTION = "pytorch-ignite"
MADE_BY = ["the program"]


def run() -> list[float]:
    network = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loss = torch.nn.functional.mse_loss
    data = [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(2)]
    trainer = create_supervised_trainer(network, optimizer, loss)
    metrics = {"mse": MeanSquaredError(), "loss": Loss(loss)}
    evaluator = create_supervised_evaluator(network, metrics=metrics)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
    stopping = EarlyStopping(2, lambda engine: -engine.state.metrics["mse"], trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopping)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(data))
    trainer.run(data, max_epochs=2)
    return [float(evaluator.state.metrics["mse"])]
