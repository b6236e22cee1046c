"""The meter: a program that runs on the device a network is made for, and measures ONNX files that it is sent.

It needs Python, numpy and ONNX Runtime, not torch; `program.write_program` packs it into one file.
"""
