"""The worker SDK: runs task functions and connects them to orchestrators. `regista.worker` has its public names."""
