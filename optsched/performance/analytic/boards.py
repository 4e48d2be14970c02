"""The table of GPU boards. Figures are facts of the manufacturers' documents named in each row, dense throughout."""

from __future__ import annotations

from optsched.performance.analytic.board import Board
from optsched.performance.analytic.mig import PROFILES

CLOCK = ("base_clock",)

# name, architecture, capability, GB, GB/s, TFLOP/s (fp64 ... fp8), SMs, MHz, NVLink, bridge, PCIe, W, source
BOARDS = (
    Board(
        "K80", "Kepler", 3.7, 12, 240, (1.46, 4.37, None, None, None, None), 13, 560, None, False, 3, 150,
        "NVIDIA Tesla K80 board specification, one of its two dies at boost clock", ("watts", "base_clock"),
    ),
    Board(
        "P100-PCIe-16GB", "Pascal", 6.0, 16, 732, (4.7, 9.3, None, 18.7, None, None), 56, 1126, None, False, 3, 250,
        "NVIDIA Tesla P100 datasheet",
    ),
    Board(
        "P100-SXM2-16GB", "Pascal", 6.0, 16, 732, (5.3, 10.6, None, 21.2, None, None), 56, 1328, 80, False, 3, 300,
        "NVIDIA Tesla P100 datasheet", ("nvlink", "watts", "base_clock"),
    ),
    Board(
        "V100-PCIe-16GB", "Volta", 7.0, 16, 900, (7.0, 14.0, None, 112, None, None), 80, 1245, None, False, 3, 250,
        "NVIDIA V100 datasheet", ("watts",),
    ),
    Board(
        "V100-SXM2-16GB", "Volta", 7.0, 16, 900, (7.8, 15.7, None, 125, None, None), 80, 1312, 150, False, 3, 300,
        "NVIDIA V100 datasheet",
    ),
    Board(
        "V100-SXM2-32GB", "Volta", 7.0, 32, 900, (7.8, 15.7, None, 125, None, None), 80, 1290, 150, False, 3, 300,
        "NVIDIA V100 datasheet", CLOCK,
    ),
    Board(
        "T4", "Turing", 7.5, 16, 320, (0.254, 8.1, None, 65, None, None), 40, 585, None, False, 3, 70,
        "NVIDIA T4 datasheet", ("fp64",),
    ),
    Board(
        "A10", "Ampere", 8.6, 24, 600, (0.976, 31.2, 62.5, 125, 125, None), 72, 885, None, False, 4, 150,
        "NVIDIA A10 datasheet", CLOCK,
    ),
    Board(
        "A100-PCIe-40GB", "Ampere", 8.0, 40, 1555, (9.7, 19.5, 156, 312, 312, None), 108, 765, 300, True, 4, 250,
        "NVIDIA A100 datasheet", (), PROFILES["A100-40GB"],
    ),
    Board(
        "A100-PCIe-80GB", "Ampere", 8.0, 80, 1935, (9.7, 19.5, 156, 312, 312, None), 108, 1065, 300, True, 4, 300,
        "NVIDIA A100 datasheet", CLOCK, PROFILES["80GB"],
    ),
    Board(
        "A100-SXM4-40GB", "Ampere", 8.0, 40, 1555, (9.7, 19.5, 156, 312, 312, None), 108, 1095, 300, False, 4, 400,
        "NVIDIA A100 datasheet", CLOCK, PROFILES["A100-40GB"],
    ),
    Board(
        "A100-SXM4-80GB", "Ampere", 8.0, 80, 2039, (9.7, 19.5, 156, 312, 312, None), 108, 1275, 300, False, 4, 400,
        "NVIDIA A100 datasheet", CLOCK, PROFILES["80GB"],
    ),
    Board(
        "A30-24GB", "Ampere", 8.0, 24, 933, (5.2, 10.3, 82, 165, 165, None), 56, 930, 100, True, 4, 165,
        "NVIDIA A30 datasheet", ("memory", "bandwidth", "fp64", "fp32", "tf32", "sms", "base_clock", "nvlink"),
        PROFILES["A30"],
    ),
    Board(
        "L4", "Ada", 8.9, 24, 300, (0.49, 30.3, 60, 121, 121, 242), 58, 795, None, False, 4, 72,
        "NVIDIA L4 datasheet", CLOCK,
    ),
    Board(
        "L40S", "Ada", 8.9, 48, 864, (1.43, 91.6, 183, 362, 362, 733), 142, 1110, None, False, 4, 350,
        "NVIDIA L40S datasheet", CLOCK,
    ),
    Board(
        "H100-PCIe-80GB", "Hopper", 9.0, 80, 2000, (25.6, 51.2, 378, 756, 756, 1513), 114, 1095, 300, True, 5, 350,
        "NVIDIA H100 PCIe product brief PB-11133", ("nvlink", "base_clock"), PROFILES["80GB"],
    ),
    Board(
        "H100-SXM5-80GB", "Hopper", 9.0, 80, 3350, (33.5, 66.9, 494.7, 989.4, 989.4, 1978.9), 132, 1590, 450, False, 5,
        700, "NVIDIA H100 datasheet", CLOCK, PROFILES["80GB"],
    ),
    Board(
        "H100-NVL-94GB", "Hopper", 9.0, 94, 3900, (30, 60, 417.5, 835, 835, 1671), 132, None, 300, True, 5, 400,
        "NVIDIA H100 datasheet", ("bandwidth", "fp64", "fp32", "tf32", "fp8", "sms", "nvlink", "watts"),
        PROFILES["H100-NVL"],
    ),
    Board(
        "H200-SXM5-141GB", "Hopper", 9.0, 141, 4800, (33.5, 66.9, 494.5, 989, 989, 1979), 132, 1590, 450, False, 5, 700,
        "NVIDIA H200 datasheet", CLOCK, PROFILES["H200"],
    ),
    Board(
        "B200-SXM-180GB", "Blackwell", 10.0, 180, 8000, (37, 75, 1125, 2250, 2250, 4500), 148, None, 900, False, 5,
        1000, "NVIDIA DGX B200 datasheet, per GPU", ("fp64", "tf32", "sms"), PROFILES["B200"],
    ),
    Board(
        "MI250X", "CDNA2", None, 64, 1638.5, (23.95, 23.95, None, 191.5, 191.5, None), 110, None, 400, False, 4, 280,
        "AMD Instinct MI250X datasheet, one of its two dies", ("nvlink", "watts"),
    ),
    Board(
        "MI300X", "CDNA3", None, 192, 5300, (81.7, 163.4, 653.7, 1307.4, 1307.4, 2614.9), 304, None, 448, False, 5, 750,
        "AMD Instinct MI300X datasheet", ("fp64", "fp32", "tf32"),
    ),
)  # fmt: skip
