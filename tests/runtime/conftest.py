"""Small models, and an OpenVINO core that pretends to have a GPU, as fixtures."""

from __future__ import annotations

from openvino_models import fake_core, make_convnet, make_embedder, saved

__all__ = ["fake_core", "make_convnet", "make_embedder", "saved"]
