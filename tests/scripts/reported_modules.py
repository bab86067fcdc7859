"""Modules as people write them, each with one habit that once made the importer answer wrongly (reported_test.py)."""

import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    """Two linear layers; what differs stands in the classes below."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 8)
        self.head = nn.Linear(8, 3)

    def logits(self, x):
        return self.head(torch.tanh(self.body(x)))

    def forward(self, x):
        return self.logits(x)


class FrozenBody(Classifier):
    """Fine-tuning: the body stays as it was trained before."""

    def __init__(self):
        super().__init__()
        self.body.requires_grad_(False)


class FeaturesFirst(Classifier):
    """Returns its features in front of the logits."""

    def forward(self, x):
        features = torch.tanh(self.body(x))
        return features, self.head(features)


class WeightedClasses(Classifier):
    """Rare classes count more."""

    def __init__(self):
        super().__init__()
        self.register_buffer("class_weights", torch.tensor([1.0, 4.0, 16.0]))

    def forward(self, x, labels):
        logits = self.logits(x)
        return F.cross_entropy(logits, labels, weight=self.class_weights), logits


class Regularised(Classifier):
    """The loss holds a parameter down."""

    def forward(self, x, labels):
        logits = self.logits(x)
        return F.cross_entropy(logits, labels) + 0.1 * self.body.weight.square().sum(), logits


class HalfPrecision(Classifier):
    """Published in float16."""

    def __init__(self):
        super().__init__()
        self.half()

    def forward(self, x):
        return self.logits(x.half())


class LastState(nn.Module):
    """Reads the last hidden state of an LSTM."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens):
        _, (hidden, _) = self.lstm(self.embedding(tokens))
        return self.head(hidden[-1])


class PaddedLabels(nn.Module):
    """Class 0 is padding: its positions do not count."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens, labels):
        logits = self.head(self.embedding(tokens))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0), logits
