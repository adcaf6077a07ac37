"""The batch API's endpoints: inputs and jobs, as the contract of ``/batch/v1`` states them."""
