from django.apps import AppConfig


class SimulationConfig(AppConfig):
    """Peers that are not real: relay hosts to try the product against, and a demo fleet."""

    name = "otp_service.simulation"
    label = "simulation"
