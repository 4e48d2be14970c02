"""Training workloads: constants that papers and model documentation publish.

Where a paper gives layer shapes and no totals, the totals are counted from the shapes; the entry
says so. FLOPs are counted as two per multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# GPU memory of the CUDA context and library workspaces, GB (our estimate).
CONTEXT_GB = 1.0
# Bytes per parameter of weights, gradient and Adam's state (Rajbhandari et al. 2020, ZeRO, section
# 3.1); the same in mixed precision (2 + 2 + 12) and in single precision (4 + 4 + 8).
STATE_BYTES = 16


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model trained with a batch size per GPU.

    Attributes
    ----------
    model : str
    batch : int
        Samples per GPU and step.
    parameters : float
    forward_flops : float
        Forward pass of one sample, FLOPs.
    activations : float
        Values of one sample kept for the backward pass.
    operators : int
        Operators of a forward pass as a framework launches them (counted from the layers, about 10
        % exact).
    mixed : bool
        Trained in mixed precision where the GPU has it, else in single precision.
    math : {"convolution", "matrix"}
        What most FLOPs are spent on.
    source : str
    """

    model: str
    batch: int
    parameters: float
    forward_flops: float
    activations: float
    operators: int
    mixed: bool
    math: Literal["convolution", "matrix"]
    source: str

    @property
    def name(self) -> str:
        """Name of the workload: model and batch size per GPU."""
        return f"{self.model}/{self.batch}"

    @property
    def gpu_memory(self) -> float:
        """GPU memory needed per GPU, GB, in the precision of the workload; rounded for documents."""
        return round(self.memory(self.mixed), 1)

    def memory(self, half: bool) -> float:
        """GPU memory needed per GPU, GB, with activations in half or single precision."""
        activations = self.batch * self.activations * (2 if half else 4)
        return CONTEXT_GB + (STATE_BYTES * self.parameters + activations) / 1e9


def _kept(layers: int, width: int, heads: int, tokens: int) -> float:
    """Values that transformer layers keep of a sequence:
    half of ``s h L (34 + 5 a s / h)`` bytes in 16 bits.

    Korthikanti et al. 2022, Reducing activation recomputation in large transformer models, section
    4.1.
    """
    return tokens * width * layers * (34 + 5 * heads * tokens / width) / 2


def _transformer(
    model: str,
    batch: int,
    parameters: float,
    layers: int,
    width: int,
    heads: int,
    tokens: int,
    vocabulary: int,
    source: str,
) -> TrainedModel:
    """A transformer stack; one sample is a sequence.

    FLOPs per token: ``2 (12 L h^2 + h V) + 2 L s h`` (Kaplan et al. 2020, section 2.1, with the
    output layer V x h of a language model).
    """
    flops = 2 * (12 * layers * width**2 + width * vocabulary) + 2 * layers * tokens * width
    kept = _kept(layers, width, heads, tokens)
    return TrainedModel(
        model,
        batch,
        parameters,
        tokens * flops,
        kept,
        14 * layers,
        True,
        "matrix",
        source,
    )


_GPT2 = "Radford et al. 2019, GPT-2, table 2; parameters of the released model"
_TORCHVISION = (
    "parameters and multiply-adds: torchvision model documentation; "
    "convolution outputs counted from the layers"
)

# All workloads by model name.
WORKLOADS: dict[str, TrainedModel] = {
    workload.model: workload
    for workload in (
        # model, batch, parameters, forward FLOPs, values kept, operators, mixed precision,
        # mathematics, source
        # Convolution outputs are kept twice, before and after batch normalisation (VGG: once).
        TrainedModel("ResNet-18", 64, 11.69e6, 2 * 1.81e9, 2 * 2.48e6, 68, True, "convolution",
                 f"He et al. 2016, Deep residual learning; {_TORCHVISION}"),
        TrainedModel("ResNet-50", 64, 25.56e6, 2 * 4.09e9, 2 * 11.1e6, 173, True, "convolution",
                 f"He et al. 2016, Deep residual learning; {_TORCHVISION}"),
        TrainedModel("VGG-16", 32, 138.4e6, 2 * 15.47e9, 13.6e6, 38, True, "convolution",
                 f"Simonyan and Zisserman 2015, Very deep convolutional networks; {_TORCHVISION}"),
        TrainedModel("ViT-B16", 64, 86.57e6, 2 * 17.56e9, _kept(12, 768, 12, 197), 170, True, "matrix",
                 "Dosovitskiy et al. 2021, An image is worth 16x16 words; torchvision model documentation"),
        # Two generators (11.4 M parameters, 56.8 G multiply-adds each: Li et al. 2020, GAN
        # compression, table 1) run three times each per pair of 256 x 256 images, so do two
        # PatchGAN discriminators (2.8 M, 3.1 G: counted).
        TrainedModel("CycleGAN", 1, 28.3e6, 2 * 6 * 59.9e9, 2 * 210e6, 500, False, "convolution",
                 "Zhu et al. 2017, Unpaired image-to-image translation; Li et al. 2020, GAN compression"),
        # 64 x 64 images; a step runs the generator once and the discriminator three times; layers
        # counted.
        TrainedModel("DCGAN", 128, 6.34e6, 2 * 4 * 104e6, 2 * 0.504e6, 52, False, "convolution",
                 "Radford et al. 2016, Unsupervised representation learning with DCGANs"),
        _transformer("BERT-base", 32, 110e6, 12, 768, 12, 128, 0, "Devlin et al. 2019, BERT (sequences of 128)"),
        _transformer("BERT-large", 16, 340e6, 24, 1024, 16, 128, 0, "Devlin et al. 2019, BERT (sequences of 128)"),
        _transformer("GPT-2-small", 4, 124e6, 12, 768, 12, 1024, 50257, _GPT2),
        _transformer("GPT-2-medium", 2, 355e6, 24, 1024, 16, 1024, 50257, _GPT2),
        _transformer("GPT-2-XL", 1, 1542e6, 48, 1600, 25, 1024, 50257, _GPT2),
        # A sample is a target token with its source token; 25,000 of them on 8 GPUs. 6 + 6 layers
        # of width 512 are
        # 168 h^2 = 44 M weights in use, the output layer 37000 h = 19 M; sentences of 64 tokens at
        # most (our choice).
        TrainedModel("Transformer", 3125, 65e6, 2 * 63e6, _kept(12, 512, 8, 64) / 64, 216, True, "matrix",
                 "Vaswani et al. 2017, Attention is all you need, base model"),
        # A sample is a sequence of 35 words: 13.3 M multiply-adds, 17.8 k values each; 35 x 2 cells
        # of 12 operators.
        TrainedModel("LSTM", 20, 19.8e6, 35 * 2 * 13.3e6, 35 * 17.8e3, 840, False, "matrix",
                 "Zaremba et al. 2015, Recurrent neural network regularization, medium model on the Penn treebank"),
        # Layers 20108-600-200-600-20108; a sample is a user.
        TrainedModel("Mult-VAE", 500, 24.5e6, 2 * 24.5e6, 42e3, 12, False, "matrix",
                 "Liang et al. 2018, Variational autoencoders for collaborative filtering, MovieLens-20M"),
    )
}  # fmt: skip
