"""Real architectures with random weights, built without a download.

>>> from placekit.zoo import ZOO
>>> list(ZOO)
['resnet50', 'inception_v3', 'mobilenet_v2', 'unet', 'bert_base', 'gpt2', 'decoder']
"""

from placekit.zoo.builder import ZooModel as ZooModel
from placekit.zoo.builder import build as build
from placekit.zoo.registry import ZOO as ZOO
from placekit.zoo.registry import ZooEntry as ZooEntry
from placekit.zoo.registry import ZooParameter as ZooParameter
