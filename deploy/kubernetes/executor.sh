#!/usr/bin/env bash
# The entry point of the image. Spark starts an executor with the single argument "executor" and its parameters in
# variables (org.apache.spark.deploy.k8s.features.BasicExecutorFeatureStep); other arguments are a command.
set -euo pipefail

[ "${1:-}" = executor ] || exec "$@"

options=()
# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option each.
for ((number = 0; ; number++)); do
    name=SPARK_JAVA_OPT_$number
    [ -n "${!name+set}" ] || break
    options+=("${!name}")
done

exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
